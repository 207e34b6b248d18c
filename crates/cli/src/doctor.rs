//! `brambling doctor`: what this machine offers, and what is wrong with it.

use crate::{Host, OK, Streams};

pub(crate) fn run(_json: bool, _host: &mut dyn Host, _streams: &mut Streams<'_>) -> u8 {
    OK
}
