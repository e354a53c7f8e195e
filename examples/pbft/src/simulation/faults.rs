//! Faults of a run, and their end. Lies do not end.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::host::is_of_the_disk;
use super::{Violation, World};

/// Starts of a node, at most, once its disk is well again.
const STARTS_MAX: usize = 5;

impl World {
    /// Does what the seed draws, until its time is over. After each fault what was executed by then
    /// is looked at.
    pub(super) async fn run_faults(&mut self) -> Result<(), Violation> {
        let end = Instant::now() + self.plan.faulty_for;
        while Instant::now() < end {
            sleep(self.random.up_to(self.plan.fault)).await;
            self.sweep().await?;
            self.fault().await?;
            self.truth.check()?;
        }
        Ok(())
    }

    async fn fault(&mut self) -> Result<(), Violation> {
        let index = self.random.index(self.hosts.len());
        if !self.hosts[index].is_up() {
            return self.start(index).await;
        }
        let plan = &self.plan;
        let (crash, part, mend) = (plan.crash, plan.part, plan.mend);
        let stop = plan.stop;
        match u32::try_from(self.random.within(0..100)).unwrap_or(0) {
            draw if draw < crash => self.crash(index),
            draw if draw < crash + part => self.part(index),
            draw if draw < crash + part + mend => {
                self.trace(|| "all partitions end".to_owned());
                self.network.heal_all();
            }
            draw if draw < crash + part + mend + stop => self.stop(index).await?,
            _ => self.hinder(index).await,
        }
        Ok(())
    }

    /// Nodes that their disk has failed are started again, later, on a host that was started anew:
    /// a name whose sync has failed is seen until then, and is not durable.
    async fn sweep(&mut self) -> Result<(), Violation> {
        for index in 0..self.hosts.len() {
            if self.hosts[index].is_up() {
                continue;
            }
            let Some((mut node, mount)) = self.hosts[index].take() else { continue };
            match node.failed().await {
                Err(error) if is_of_the_disk(&error) => {
                    let id = self.hosts[index].id();
                    self.trace(|| format!("node {id} stops: {error}"));
                    self.network.crash(self.hosts[index].node());
                    self.report.crashes += 1;
                    drop(mount);
                    self.hosts[index].disk().crash();
                }
                ended => {
                    let error = ended.err().map_or_else(String::new, |error| error.to_string());
                    return Err(Violation::Failed { node: self.hosts[index].id(), error });
                }
            }
        }
        Ok(())
    }

    fn crash(&mut self, index: usize) {
        let is_power = self.random.chance(70);
        let id = self.hosts[index].id();
        self.trace(|| format!("node {id} crashes, power failure: {is_power}"));
        self.hosts[index].crash(&self.network, is_power);
        self.report.crashes += 1;
    }

    /// Parts a node from all others or from one, one way or both.
    fn part(&mut self, index: usize) {
        let node = self.hosts[index].node();
        let is_from_all = self.random.chance(50);
        let one = self.random.index(self.hosts.len());
        let (hears, is_heard) =
            [(false, false), (true, false), (false, true)][self.random.index(3)];
        self.trace(|| {
            let whom = if is_from_all { "all".to_owned() } else { format!("node {}", one + 1) };
            format!("{node} is parted from {whom}; it hears: {hears}, is heard: {is_heard}")
        });
        for (at, other) in self.hosts.iter().enumerate() {
            if at == index || (at != one && !is_from_all) {
                continue;
            }
            if !hears {
                self.network.partition(other.node(), node);
            }
            if !is_heard {
                self.network.partition(node, other.node());
            }
        }
    }

    async fn stop(&mut self, index: usize) -> Result<(), Violation> {
        let Some((node, mount)) = self.hosts[index].take() else { return Ok(()) };
        let id = self.hosts[index].id();
        let stopped = node.stop(Duration::from_secs(1)).await;
        self.trace(|| format!("node {id} was told to stop: {stopped:?}"));
        self.network.crash(self.hosts[index].node());
        mount.kill();
        self.report.stops += 1;
        match stopped {
            Err(error) if !is_of_the_disk(&error) => {
                Err(Violation::Failed { node: id, error: error.to_string() })
            }
            _ => Ok(()),
        }
    }

    /// A disk that hangs for a while, or connections that are lost.
    async fn hinder(&mut self, index: usize) {
        let id = self.hosts[index].id();
        if self.random.chance(50) {
            self.trace(|| format!("the disk of node {id} hangs"));
            self.hosts[index].disk().stall();
            sleep(self.random.up_to(Duration::from_secs(1))).await;
            self.hosts[index].disk().resume();
        } else {
            self.trace(|| format!("node {id} loses its connections"));
            let node = self.hosts[index].node();
            self.members.nodes().filter(|other| *other != node).for_each(|other| {
                self.network.cut(node, other);
            });
        }
    }

    /// Ends all faults, and starts who is down.
    pub(super) async fn heal(&mut self) -> Result<(), Violation> {
        self.trace(|| "all heals".to_owned());
        self.network.heal_all();
        for host in &self.hosts {
            host.disk().configure(|settings| settings.sync_fails = 0.0);
        }
        // A node may still find that its disk has failed it before.
        for _ in 0..STARTS_MAX {
            self.sweep().await?;
            for index in 0..self.hosts.len() {
                if !self.hosts[index].is_up() {
                    self.start(index).await?;
                }
            }
            sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }
}
