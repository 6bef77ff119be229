//! A log that a test can read.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

/// Everything that was written to it. Clones are the same log.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// How many lines hold all of these.
    pub(crate) fn with(&self, texts: &[&str]) -> usize {
        let all = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        all.lines().filter(|line| texts.iter().all(|text| line.contains(text))).count()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
