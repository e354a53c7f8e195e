//! The program checks what it exports; here it is run.

use std::process::Command;

#[test]
fn one_trace_reaches_from_the_customer_to_the_store() {
    let output = Command::new(env!("CARGO_BIN_EXE_telemetry")).output().expect("it was built");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), output.stderr);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&errors));
    assert!(text.contains("one trace, 6 spans, four nodes"), "{text}");
    assert!(text.contains("\n      bank.Bank/Pay (Client at n1)\n"), "{text}");
}
