//! The examples check their own bytes, and end with an error or a panic if one is wrong. They are
//! compiled into this test, so that no `cargo test` can leave them out.

#[path = "../examples/embed.rs"]
mod embed;
#[path = "../examples/engine.rs"]
mod engine;
#[path = "../examples/layerwise.rs"]
mod layerwise;
#[path = "../examples/tour.rs"]
mod tour;
#[expect(dead_code, reason = "its `main` reads arguments, which are the test's here")]
#[path = "../examples/warm_restart.rs"]
mod warm_restart;

#[test]
fn embed_example_ends_well() {
    embed::main().expect("it ends well");
}

#[test]
fn readme_shows_the_code_of_the_embed_example() {
    let example = include_str!("../examples/embed.rs").replace("pub(crate) ", "");
    let (_, code) = example.split_once("\n\n").expect("a header, and code");
    let readme = include_str!("../../README.md");
    assert!(
        readme.contains(&format!("```rust\n{}```", code)),
        "README.md has another text than examples/embed.rs"
    );
}

#[test]
fn engine_example_ends_well() {
    engine::main().expect("it ends well");
}

#[test]
fn tour_example_ends_well() {
    tour::main().expect("it ends well");
}

#[test]
fn layerwise_example_ends_well() {
    layerwise::main().expect("it ends well");
}

#[tokio::test]
async fn warm_restart_example_ends_well() {
    warm_restart::both().await.expect("it ends well");
}
