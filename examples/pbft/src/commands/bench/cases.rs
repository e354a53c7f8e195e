//! Cases of a bench: which there are, and which cannot be.

use anyhow::{Result, bail};
use node_kit::cluster::{Credits, Rdma};
use pbft::settings::Settings;

use crate::args::{AuthName, BenchArgs, CreditsName, Transport};
use crate::commands::client::is_to_all;

/// One thing that is measured, on a cluster of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) transport: Transport,
    pub(super) auth: AuthName,
    pub(super) clients: u64,
    /// Settings of that transport; `None` for the others.
    pub(super) rdma: Option<Rdma>,
}

/// All cases, in the order in which they are measured: those that are compared follow each other.
///
/// # Errors
/// A combination that cannot be measured, with the remedy.
pub(super) fn cases(args: &BenchArgs) -> Result<Vec<Case>> {
    let is_set = !args.window.is_empty() || !args.credits.is_empty();
    if is_set && !args.transport.contains(&Transport::Rdma) {
        bail!("--window and --credits are settings of --transport rdma, which is not measured");
    }
    for &transport in &args.transport {
        args.auth.iter().try_for_each(|auth| allow(args, transport, *auth))?;
    }
    let mut cases = Vec::new();
    for &transport in &args.transport {
        let settings = match transport {
            Transport::Rdma => rdma(args)?.into_iter().map(Some).collect(),
            _ => vec![None],
        };
        for &auth in &args.auth {
            for &rdma in &settings {
                let case = |&clients| Case { transport, auth, clients, rdma };
                cases.extend(args.clients.iter().map(case));
            }
        }
    }
    Ok(cases)
}

fn allow(args: &BenchArgs, transport: Transport, auth: AuthName) -> Result<()> {
    if auth == AuthName::Channel && !transport.proves_names() {
        bail!(
            "with --auth channel a connection has to prove who is at its other end, and {} proves \
             nobody: take --transport tls or quic",
            transport.scheme()
        );
    }
    is_to_all(args.path, &Settings { auth: auth.into(), ..Settings::default() })?;
    Ok(())
}

/// Windows, each with all kinds of credits.
fn rdma(args: &BenchArgs) -> Result<Vec<Rdma>> {
    let default = [Rdma::default().window];
    let windows = if args.window.is_empty() { &default[..] } else { &args.window };
    let credits = if args.credits.is_empty() { &[CreditsName::Counted][..] } else { &args.credits };
    let of = |&window: &u16| {
        credits.iter().map(move |&name| Rdma { window, credits: Credits::from(name) })
    };
    let all: Vec<Rdma> = windows.iter().flat_map(of).collect();
    all.iter().try_for_each(|one| one.check_host(args.host))?;
    Ok(all)
}
