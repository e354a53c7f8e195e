//! Faults of a run, and their end.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::host::{Host, is_of_the_disk};
use super::{Node as _, Program, Violation, World};

/// Starts of a node, at most, once its disk is well again.
const STARTS_MAX: usize = 5;

impl<P: Program> World<P> {
    /// Does what the seed draws, until its time is over. After each fault the program looks at its
    /// truths.
    ///
    /// # Errors
    /// [`Violation::Failed`]; those of [`Program::check`].
    pub async fn run_faults(&mut self) -> Result<(), Violation> {
        let end = Instant::now() + self.conditions.faulty_for;
        while Instant::now() < end {
            sleep(self.random.up_to(self.conditions.fault)).await;
            self.sweep().await?;
            self.fault().await?;
            self.program.check()?;
        }
        Ok(())
    }

    async fn fault(&mut self) -> Result<(), Violation> {
        let index = self.random.index(self.hosts.len());
        if !self.hosts[index].is_up() {
            return self.start(index).await;
        }
        match self.random.within(0..100) {
            0..40 => self.crash(index),
            40..60 => self.part(index),
            60..80 => {
                self.trace(|| "all partitions end, and disks have room".to_owned());
                self.network.heal_all();
                self.hosts.iter().for_each(Host::make_room);
            }
            80..85 => self.stop(index).await?,
            _ => self.hinder(index).await,
        }
        Ok(())
    }

    /// Nodes that their disk has failed are started again, later.
    async fn sweep(&mut self) -> Result<(), Violation> {
        for index in 0..self.hosts.len() {
            if self.hosts[index].is_up() {
                continue;
            }
            let Some((mut node, mount)) = self.hosts[index].take() else { continue };
            match node.failed().await {
                Err(error) if is_of_the_disk::<P::Node>(&error) => {
                    let node = self.hosts[index].node();
                    self.trace(|| format!("{node} stops: {error}"));
                    self.network.crash(node);
                    self.report.crashes += 1;
                    mount.kill();
                }
                ended => {
                    let error = ended.err().map_or_else(String::new, |error| error.to_string());
                    return Err(Violation::Failed { node: self.hosts[index].node().get(), error });
                }
            }
        }
        Ok(())
    }

    fn crash(&mut self, index: usize) {
        let is_power = self.random.chance(70);
        let node = self.hosts[index].node();
        self.trace(|| format!("{node} crashes, power failure: {is_power}"));
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
        let Some((running, mount)) = self.hosts[index].take() else { return Ok(()) };
        let node = self.hosts[index].node();
        let stopped = running.stop(Duration::from_secs(1)).await;
        self.trace(|| format!("{node} was told to stop: {stopped:?}"));
        self.network.crash(node);
        mount.kill();
        self.report.stops += 1;
        match stopped {
            Err(error) if !is_of_the_disk::<P::Node>(&error) => {
                Err(Violation::Failed { node: node.get(), error: error.to_string() })
            }
            _ => Ok(()),
        }
    }

    /// A disk that hangs for a while or is full, or connections that are lost.
    async fn hinder(&mut self, index: usize) {
        let node = self.hosts[index].node();
        match self.random.index(3) {
            0 => {
                self.trace(|| format!("the disk of {node} hangs"));
                self.hosts[index].disk().stall();
                sleep(self.random.up_to(Duration::from_secs(1))).await;
                self.hosts[index].disk().resume();
            }
            1 => {
                self.trace(|| format!("the disk of {node} is full"));
                self.hosts[index].disk().configure(|settings| settings.capacity = 0);
            }
            _ => {
                self.trace(|| format!("{node} loses its connections"));
                self.members.nodes().filter(|other| *other != node).for_each(|other| {
                    self.network.cut(node, other);
                });
            }
        }
    }

    /// Ends all faults, and starts who is down.
    ///
    /// # Errors
    /// [`Violation::Failed`].
    pub async fn heal(&mut self) -> Result<(), Violation> {
        self.trace(|| "all heals".to_owned());
        self.network.heal_all();
        for host in &self.hosts {
            host.disk().configure(|settings| settings.sync_fails = 0.0);
            host.make_room();
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
