//! The rows of `reference/accounting.json` that the engines here answer.
