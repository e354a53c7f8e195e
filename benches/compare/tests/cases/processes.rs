//! Server processes: that they count, and that none is left behind.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use compare::flavour::Flavour;
use compare::processes::{Servers, Setup};
use compare::system::System;

const PROGRAM: &str = env!("CARGO_BIN_EXE_compare");
const COUNTED: &str = env!("CARGO_BIN_EXE_compare-counted");

#[test]
fn a_server_ends_with_its_input_and_counts_if_its_program_does() {
    assert_eq!(allocations_of_a_server(PROGRAM), 0);
    assert!(allocations_of_a_server(COUNTED) > 0);
}

/// Those that it makes to read two commands and to answer one.
fn allocations_of_a_server(program: &str) -> u64 {
    let mut command = Command::new(program);
    command.args(["serve", "tcp-tokio", "ct"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(output.next().unwrap().unwrap().starts_with("listening 127.0.0.1:"));
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "begin\nend").unwrap();
    assert_eq!(output.next().unwrap().unwrap(), "begun");
    let spent = output.next().unwrap().unwrap();
    let [_, allocations] = spent.strip_prefix("spent ").unwrap().split(' ').collect::<Vec<_>>()[..]
    else {
        panic!("{spent}");
    };
    drop(input);
    assert!(child.wait().unwrap().success());
    assert!(output.next().is_none());
    allocations.parse().unwrap()
}

#[test]
fn servers_of_every_system_start_and_count() {
    for system in System::ALL {
        let (flavour, delay) = (Flavour::Mt, Duration::ZERO);
        let setup = Setup { program: PROGRAM.into(), system, flavour, delay };
        let mut servers = Servers::start(&setup, 2).unwrap();
        let addresses = servers.addresses();
        assert_ne!(addresses[0], addresses[1], "{system}");
        servers.begin().unwrap();
        servers.end().unwrap();
    }
}

#[test]
fn a_program_that_is_no_server_is_an_error() {
    // A test program refuses the arguments of a server, and ends.
    let program = std::env::current_exe().unwrap();
    let (system, flavour, delay) = (System::TcpTokio, Flavour::Ct, Duration::ZERO);
    let setup = Setup { program, system, flavour, delay };
    assert!(Servers::start(&setup, 1).is_err());
}
