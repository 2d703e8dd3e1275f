//! Counts the façade's allocations; `facade` calls it. Prints JSON.

use kvstrata_benches::disk::Failure;
use kvstrata_testing::counting::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> Result<(), Failure> {
    println!("{:#}", kvstrata_benches::facade::counts::count()?);
    Ok(())
}
