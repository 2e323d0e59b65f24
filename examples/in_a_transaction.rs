//! A run that is started in the same transaction as the rows of an application.

use pipeline::{Invalid, Pipeline, RunFilter, RunStatus};
use shop::studio::Task;
use shop::{Result, Tree};

fn ship() -> Result<Pipeline<()>, Invalid> {
    Pipeline::configure("ship", |p| {
        let packed = p.step("pack", Task { millis: 100 });
        p.following(&packed).step("send", Task { millis: 100 });
    })
}

#[tokio::main]
async fn main() -> Result<()> {
    shop::tell(
        |worker| worker.register::<Task>(),
        async |client| {
            let pool = client.pool();
            sqlx::query("create table orders (number bigint primary key)")
                .execute(pool)
                .await?;
            let order = "insert into orders (number) values ($1)";

            let mut tx = pool.begin().await?;
            sqlx::query(order).bind(7_i64).execute(&mut *tx).await?;
            client.start_in(&mut tx, ship()?).await?;
            tx.rollback().await?; // for example because the card of the customer was refused
            let runs = client.runs(&RunFilter::new()).await?.items;
            println!("rolled back: {} runs", runs.len());
            assert!(runs.is_empty());

            let pipeline = ship()?;
            let tree = Tree::of(pipeline.graph());
            let mut tx = pool.begin().await?;
            sqlx::query(order).bind(7_i64).execute(&mut *tx).await?;
            // With a key, a request that is sent twice starts only one run.
            let run = client.start_in(&mut tx, pipeline).key("order-7").await?;
            tx.commit().await?;
            let again = client.start(ship()?).key("order-7").await?;
            println!(
                "committed; a second start with the same key returned the same run: {}",
                again.id() == run.id()
            );
            assert_eq!((again.id(), again.is_new()), (run.id(), false));

            assert_eq!(run.wait().await?, RunStatus::Succeeded);
            print!("{}", tree.text(&run.state().await?));
            Ok(())
        },
    )
    .await
}
