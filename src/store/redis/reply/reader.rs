//! Reads the integers of a reply one after the other; an unexpected one is an error.

use std::time::Duration;

use crate::store::StoreError;

/// A reply, read from the front.
pub(super) struct Reader<'a> {
    script: &'static str,
    all: &'a [i64],
    pub(super) rest: &'a [i64],
}

impl<'a> Reader<'a> {
    pub(super) fn new(script: &'static str, all: &'a [i64]) -> Self {
        Self { script, all, rest: all }
    }

    pub(super) fn signed(&mut self) -> Result<i64, StoreError> {
        let (first, rest) = self.rest.split_first().ok_or_else(|| self.odd())?;
        self.rest = rest;
        Ok(*first)
    }

    pub(super) fn number(&mut self) -> Result<u64, StoreError> {
        let number = self.signed()?;
        u64::try_from(number).map_err(|_| self.odd())
    }

    pub(super) fn yes(&mut self) -> Result<bool, StoreError> {
        match self.signed()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.odd()),
        }
    }

    pub(super) fn ms(&mut self) -> Result<Duration, StoreError> {
        self.number().map(Duration::from_millis)
    }

    pub(super) fn end(&self) -> Result<(), StoreError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.odd()) }
    }

    pub(super) fn odd(&self) -> StoreError {
        let shown = &self.all[..self.all.len().min(12)];
        StoreError::Broken(format!("{}: {} integers: {shown:?}…", self.script, self.all.len()))
    }
}
