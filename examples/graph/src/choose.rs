//! Choice of the ids a demo asks for: those whose every step goes to another shard and whose
//! comments reply to a post, so that the number of hops is the one of the query's shape; and any
//! others, to compare.

use std::collections::BTreeMap;

use crate::model::Parent;
use crate::query::Query;
use crate::steps::{first, run};
use crate::store::{Graph, Part, Shard, Sharding};

use crate::proto::Step;

/// Ids of one query that need the same number of requests one after another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The query.
    pub query: Query,
    /// Property that they have in common, for people.
    pub name: &'static str,
    /// The ids.
    pub ids: Vec<i64>,
}

/// A kind of ids: the query, a name, the requests one after another, and what the message must be.
struct Kind {
    query: Query,
    name: &'static str,
    depth: u32,
    is_comment: Option<bool>,
}

/// Ids of each sample, at most.
const IDS_MAX: usize = 16;

/// The samples a demo asks for. A kind of which the graph has none is left out.
pub fn samples(graph: &Graph, sharding: Sharding) -> Vec<Sample> {
    let shards: Vec<Shard> = Part::all(sharding).map(|part| graph.shard(part)).collect();
    let kind = |query, name, depth, is_comment| Kind { query, name, depth, is_comment };
    let full = [
        kind(Query::Is1, "", 1, None),
        kind(Query::Is2, "", 4, None),
        kind(Query::Is3, "", 2, None),
        kind(Query::Is4, "", 1, None),
        kind(Query::Is5, "", 2, None),
        kind(Query::Is6, "post", 3, Some(false)),
        kind(Query::Is6, "comment", 4, Some(true)),
        kind(Query::Is7, "", 3, None),
    ];
    let mut samples: Vec<Sample> =
        full.iter().map(|kind| full_depth(graph, &shards, kind)).collect();
    samples.extend(Query::ALL.into_iter().map(|query| any(graph, query)));
    samples.retain(|sample| !sample.ids.is_empty());
    samples
}

/// The first id of the deepest sample of a query.
pub fn deepest(graph: &Graph, sharding: Sharding, query: Query) -> Option<i64> {
    let samples = samples(graph, sharding).into_iter();
    let mut of_query: Vec<_> = samples.filter(|sample| sample.query == query).collect();
    // What has any depth comes last; before it, deeper ones come later.
    let any = of_query.pop()?;
    of_query.pop().unwrap_or(any).ids.first().copied()
}

fn full_depth(graph: &Graph, shards: &[Shard], kind: &Kind) -> Sample {
    let sharding = shards[0].part().sharding();
    let fits = |id: &i64| {
        let message = graph.whole().message((*id).into()).map(|record| record.message.parent);
        let is_comment = message.map(|parent| matches!(parent, Parent::Message(_)));
        let is_of_kind = kind.is_comment.is_none_or(|wanted| is_comment == Some(wanted));
        is_of_kind && depth(shards, first(kind.query, *id, sharding)) == kind.depth
    };
    let ids = candidates(graph, kind.query).filter(fits).take(IDS_MAX).collect();
    Sample { query: kind.query, name: kind.name, ids }
}

fn any(graph: &Graph, query: Query) -> Sample {
    let count = candidates(graph, query).count();
    let step = (count / IDS_MAX).max(1);
    let ids = candidates(graph, query).step_by(step).take(IDS_MAX).collect();
    Sample { query, name: "any", ids }
}

fn candidates(graph: &Graph, query: Query) -> Box<dyn Iterator<Item = i64> + '_> {
    match query {
        Query::Is1 | Query::Is2 | Query::Is3 => {
            Box::new(graph.whole().persons().map(|record| record.person.id.0))
        }
        Query::Is4 | Query::Is5 | Query::Is6 | Query::Is7 => {
            Box::new(graph.whole().messages().map(|record| record.message.id.0))
        }
    }
}

/// Requests one after another on the longest way that finds something.
fn depth(shards: &[Shard], steps: BTreeMap<usize, Step>) -> u32 {
    let of_step = |(shard, step): (usize, Step)| {
        let sight = run(&shards[shard], step).expect("it asks for one id");
        let own = if sight.facts.is_empty() { 0 } else { sight.facts.depth };
        own.max(depth(shards, sight.next))
    };
    steps.into_iter().map(of_step).max().unwrap_or(0)
}
