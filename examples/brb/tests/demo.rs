//! The demo does what it says, on loopback.

#[tokio::test]
async fn the_demo_keeps_its_word() {
    brb::demo::run().await.expect("correct members agree");
}
