//! The binary `virtual-queue`.

fn main() {}
