//! The output of a step is the input of the steps after it. The compiler checks that the types fit.

use pipeline::prelude::*;
use serde::{Deserialize, Serialize};
use shop::{Result, Tree};

/// Reads an order.
#[derive(Serialize, Deserialize, Job)]
struct ReadOrder {
    number: u64,
}

/// The contents of an order.
#[derive(Serialize, Deserialize)]
struct Order {
    number: u64,
    cents: Vec<u64>,
}

impl Perform for ReadOrder {
    type Input = (); // no step comes before this one
    type Output = Order;

    async fn perform(self, (): (), _: &Context) -> Result<Order, JobError> {
        Ok(Order {
            number: self.number,
            cents: vec![1_250, 400, 99],
        })
    }
}

/// Adds up the prices of an order.
#[derive(Serialize, Deserialize, Job)]
struct Total;

impl Perform for Total {
    type Input = Order; // the output of the step before
    type Output = u64;

    async fn perform(self, order: Order, _: &Context) -> Result<u64, JobError> {
        Ok(order.cents.iter().sum())
    }
}

/// Looks up a discount. The service does not answer today.
#[derive(Serialize, Deserialize, Job)]
#[job(max_attempts = 1)]
struct Discount;

impl Perform for Discount {
    type Input = Order;
    type Output = u64;

    async fn perform(self, _: Order, _: &Context) -> Result<u64, JobError> {
        Err(JobError::new("Away", "no answer"))
    }
}

/// Writes the bill.
#[derive(Serialize, Deserialize, Job)]
struct Bill;

impl Perform for Bill {
    type Input = (Order, u64, Option<u64>); // the outputs of three steps, one of them optional
    type Output = String;

    async fn perform(
        self,
        (order, total, discount): (Order, u64, Option<u64>),
        _: &Context,
    ) -> Result<String, JobError> {
        let cents = total - discount.unwrap_or(0);
        Ok(format!(
            "order {}: {}.{:02}",
            order.number,
            cents / 100,
            cents % 100
        ))
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let bill = Pipeline::configure("bill", |p| {
        let order = p.step("order", ReadOrder { number: 7 });
        let total = order.then("total", Total);
        let discount = order.then("discount", Discount).optional();
        p.after((&order, &total, &discount)).step("bill", Bill)
    })?;
    let tree = Tree::of(bill.graph());

    let register =
        |worker: pipeline::Worker| worker.register::<(ReadOrder, Total, Discount, Bill)>();
    shop::tell(register, async |client| {
        let run = client.start(bill).await?;
        run.wait().await?;
        print!("{}", tree.text(&run.state().await?));
        println!("\noutput of the run      {}", run.output().await?);
        println!(
            "output of `total`      {}",
            run.output_of::<u64>("total").await?
        );
        assert_eq!(run.output().await?, "order 7: 17.49");
        Ok(())
    })
    .await
}
