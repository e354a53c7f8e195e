//! Texts of the compiler about mistakes with configurations and rules.

#[path = "../../core/tests/ui.rs"]
mod texts;
