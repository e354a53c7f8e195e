//! A shard as a node: the three forms of a step, served by one endpoint.

use convoke::{Code, Context, Endpoint, Finish, Status, Task};

use crate::cluster::shard_node;
use crate::forms::{SAME_DATA, whole};
use crate::proto::{Facts, Graph, Next, Sight, Step, UsageReport, UsageRequest, graph};
use crate::steps::{self, TooMuch, run};
use crate::store::Shard;

/// One shard. Where the others are is the concern of its endpoint.
#[derive(Debug)]
pub struct Node {
    shard: Shard,
    cluster: u64,
    data: u64,
}

impl Node {
    /// The node of this shard in the cluster of this number, of a graph of this
    /// [fingerprint](crate::serve::Source::fingerprint).
    pub fn new(shard: Shard, cluster: u64, data: u64) -> Self {
        Self { shard, cluster, data }
    }

    fn run(&self, step: Step) -> Result<steps::Sight, Status> {
        self.check(&step).map_err(|text| Status::new(Code::FailedPrecondition, text))?;
        let mut sight = run(&self.shard, step).map_err(too_much)?;
        sight.facts.data = self.data;
        for next in sight.next.values_mut() {
            (next.cluster, next.data) = (self.cluster, self.data);
        }
        Ok(sight)
    }

    /// Refuses a step that counts other shards, for it looks for ids where they are not and finds
    /// nothing, and one of another cluster or other data, whose rows would be mixed with these.
    fn check(&self, step: &Step) -> Result<(), String> {
        const FILE: &str = "take the cluster file that the shards have";
        let part = self.shard.part();
        let (index, shards) = (part.index(), part.sharding().shards());
        if step.cluster != self.cluster {
            let (own, asked) = (self.cluster, step.cluster);
            return Err(format!(
                "shard {index} is of cluster {own}, and was asked as of cluster {asked}: {FILE}"
            ));
        }
        if step.shards != shards as u64 {
            let asked = step.shards;
            return Err(format!(
                "shard {index} is one of {shards}, and was asked as one of {asked}: {FILE}"
            ));
        }
        if step.data != 0 && step.data != self.data {
            return Err(format!(
                "shard {index} has other data than the one that leads to it: {SAME_DATA}"
            ));
        }
        Ok(())
    }
}

impl Graph for Node {
    async fn walk(&self, step: Step, task: Task<Facts>) -> Result<Finish, Status> {
        let sight = self.run(step)?;
        if !sight.facts.is_empty() {
            task.reply(&sight.facts)?;
        }
        let next = sight.next.into_iter();
        task.fan_out(next.map(|(shard, step)| (shard_node(shard), graph::WALK.request(step)))).await
    }

    async fn look(&self, step: Step, _: Context) -> Result<Sight, Status> {
        let steps::Sight { facts, next } = self.run(step)?;
        let next = next.into_iter().map(|(shard, step)| Next {
            shard: u32::try_from(shard).expect("there are few shards"),
            step: Some(step),
        });
        Ok(Sight { facts: Some(facts), next: next.collect() })
    }

    async fn gather(&self, step: Step, context: Context) -> Result<Facts, Status> {
        let steps::Sight { mut facts, next } = self.run(step)?;
        if next.is_empty() {
            return Ok(facts);
        }
        let next = next.into_iter();
        let next = next.map(|(shard, step)| (shard_node(shard), graph::GATHER.request(step)));
        let (replies, outcome) = context.fan_out(next).open()?.collect().await?;
        // With the code of a step that failed, for whoever waits for this one.
        facts.absorb(whole(replies, outcome)?);
        facts.check_size().map_err(too_much)?;
        Ok(facts)
    }

    async fn usage(&self, _: UsageRequest, context: Context) -> Result<UsageReport, Status> {
        Ok(usage(&context.endpoint()))
    }
}

fn too_much(error: TooMuch) -> Status {
    Status::new(Code::ResourceExhausted, error.to_string())
}

/// Resources that this process has used, and frames that its endpoint has sent.
pub fn usage(endpoint: &Endpoint) -> UsageReport {
    let cpu = cpu_time::ProcessTime::now().as_duration();
    UsageReport {
        cpu_us: u64::try_from(cpu.as_micros()).unwrap_or(u64::MAX),
        frames_sent: endpoint.counters().frames_sent,
    }
}
