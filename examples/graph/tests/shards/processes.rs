//! Real shard processes on loopback: right answers in every form, and what is left when one is
//! killed.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use convoke::End;
use graph::choose::samples;
use graph::cluster::shard_node;
use graph::forms::Form;
use graph::generate::Recipe;
use graph::processes::{Processes, Setup};
use graph::proto::{Facts, Step};
use graph::query::Query;
use graph::reference;
use graph::steps::{assemble, first, run};
use graph::store::{Graph, Part, Shard, Sharding};

fn setup(delay: Duration) -> Setup {
    Setup {
        program: env!("CARGO_BIN_EXE_graph").into(),
        data: None,
        recipe: Recipe { persons: 80, seed: 5 },
        sharding: Sharding::over(NonZeroUsize::new(4).expect("not zero")),
        delay,
    }
}

#[tokio::test]
async fn every_form_answers_as_the_reference() -> anyhow::Result<()> {
    let setup = setup(Duration::ZERO);
    let graph = setup.source().graph()?;
    let processes = Processes::start(&setup).await?;
    for sample in samples(&graph, setup.sharding) {
        for id in sample.ids.into_iter().chain([-1]) {
            for form in Form::ALL {
                let answered = processes.client().ask(form, sample.query, id).await?;
                assert_eq!(answered.answer, reference::answer(&graph, sample.query, id));
            }
        }
    }
    processes.stop().await
}

#[tokio::test]
async fn a_shard_killed_while_a_query_runs_costs_its_branches_only() -> anyhow::Result<()> {
    // Each frame takes long enough for the kill to come while requests are on their way.
    let setup = setup(Duration::from_millis(100));
    let graph = setup.source().graph()?;
    let (query, id, dead) = victim(&graph, setup.sharding);
    let mut processes = Processes::start(&setup).await?;
    let call = processes.client().open(query, id, false)?;
    processes.kill(dead).await?;
    let (replies, outcome) = call.collect().await?;

    assert_eq!(outcome.end, End::Partial);
    assert!(!outcome.failures.is_empty());
    for failure in &outcome.failures {
        assert_eq!(failure.node, Some(shard_node(dead)), "{failure}");
        assert_ne!(failure.cause, convoke::Cause::Deadline, "{failure}");
    }
    let mut facts = Facts::default();
    replies.into_iter().for_each(|reply| facts.absorb(reply.into_inner()));
    let shards: Vec<Shard> = Part::all(setup.sharding).map(|part| graph.shard(part)).collect();
    let left = walk_without(dead, &shards, first(query, id, setup.sharding));
    assert_eq!(assemble(query, id, facts), assemble(query, id, left));
    processes.stop().await
}

/// A query and a shard that it needs, but not first and not for everything.
fn victim(graph: &Graph, sharding: Sharding) -> (Query, i64, usize) {
    let shards: Vec<Shard> = Part::all(sharding).map(|part| graph.shard(part)).collect();
    let whole = samples(graph, sharding);
    for sample in whole.iter().filter(|sample| sample.query == Query::Is2) {
        for id in &sample.ids {
            let steps = first(Query::Is2, *id, sharding);
            for dead in (0..sharding.shards()).filter(|shard| !steps.contains_key(shard)) {
                let facts = walk_without(dead, &shards, steps.clone());
                let rows = assemble(Query::Is2, *id, facts).rows.len();
                let all = reference::answer(graph, Query::Is2, *id).rows.len();
                if 0 < rows && rows < all {
                    return (Query::Is2, *id, dead);
                }
            }
        }
    }
    panic!("some query needs a shard for a part of its answer");
}

fn walk_without(dead: usize, shards: &[Shard], steps: BTreeMap<usize, Step>) -> Facts {
    let mut facts = Facts::default();
    for (shard, step) in steps.into_iter().filter(|(shard, _)| *shard != dead) {
        let sight = run(&shards[shard], step).expect("it asks for one id");
        facts.absorb(sight.facts);
        facts.absorb(walk_without(dead, shards, sight.next));
    }
    facts
}
