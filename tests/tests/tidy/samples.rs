//! Sample configurations in deploy/, parsed by the programs that read them.
