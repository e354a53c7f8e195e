//! A shard as a node: the three forms of a step, served by one endpoint.

use convoke::{CallError, Code, Context, Endpoint, Finish, Status, Task};

use crate::cluster::shard_node;
use crate::proto::{Facts, Graph, Next, Sight, Step, UsageReport, UsageRequest, graph};
use crate::steps::{self, TooMuch, run};
use crate::store::Shard;

/// One shard. Where the others are is the concern of its endpoint.
#[derive(Debug)]
pub struct Node {
    shard: Shard,
}

impl Node {
    /// The node of this shard.
    pub fn new(shard: Shard) -> Self {
        Self { shard }
    }

    /// Who counts other shards would look for ids where they are not, and find nothing.
    fn run(&self, step: Step) -> Result<steps::Sight, Status> {
        let part = self.shard.part();
        let (index, shards) = (part.index(), part.sharding().shards());
        if step.shards != shards as u64 {
            let asked = step.shards;
            let text = format!(
                "shard {index} is one of {shards}, and was asked as one of {asked}: take the \
                 cluster file that the shards have"
            );
            return Err(Status::new(Code::FailedPrecondition, text));
        }
        run(&self.shard, step).map_err(too_much)
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
        // With the code of that step, for whoever waits for this one.
        if let Some(failure) = outcome.failures.into_iter().next() {
            return Err(CallError::Branch(failure).into());
        }
        for reply in replies {
            facts.absorb(reply.into_inner());
        }
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
