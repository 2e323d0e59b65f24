use crate::frame::Result;
/// Options of `bench -- chaos held`.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {}
pub(super) async fn run(options: Options) -> Result<()> {
    Ok(())
}
