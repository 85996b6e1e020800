//! Writing an event file: for the demonstration program, and for tests that need a writer
//! of known behaviour. Scalars go out as `simple_value`, as the writer of `PyTorch` has them.

use std::io::{self, Write};

use super::record::framed;

/// Writes records to a file, a socket, a buffer.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
}

impl<W: Write> Writer<W> {
    /// Begins a file; `wall_time` is in seconds since 1970.
    pub fn begin(out: W, wall_time: f64) -> io::Result<Self> {
        let mut writer = Self { out };
        writer.event(wall_time, 0, 3, b"brain.Event:2")?;
        Ok(writer)
    }

    /// One value at one step. Values are kept in 32 bits, as the field has them.
    pub fn scalar(&mut self, tag: &str, step: i64, wall_time: f64, value: f32) -> io::Result<()> {
        let mut entry = Vec::with_capacity(tag.len() + 16);
        bytes(&mut entry, 1, tag.as_bytes());
        entry.push(2 << 3 | 5);
        entry.extend_from_slice(&value.to_le_bytes());
        let mut summary = Vec::with_capacity(entry.len() + 4);
        bytes(&mut summary, 1, &entry);
        self.event(wall_time, step, 5, &summary)
    }

    /// Says that this writer goes on from `step`, and what others wrote there is past.
    pub fn start(&mut self, step: i64, wall_time: f64) -> io::Result<()> {
        self.event(wall_time, step, 7, &[1 << 3, 1])
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn event(&mut self, wall_time: f64, step: i64, field: u8, value: &[u8]) -> io::Result<()> {
        let mut event = Vec::with_capacity(value.len() + 24);
        event.push(1 << 3 | 1);
        event.extend_from_slice(&wall_time.to_le_bytes());
        event.push(2 << 3);
        varint(&mut event, step.cast_unsigned());
        bytes(&mut event, field, value);
        self.out.write_all(&framed(&event))
    }
}

fn bytes(out: &mut Vec<u8>, field: u8, value: &[u8]) {
    out.push(field << 3 | 2);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// Seven bits a byte, the least first.
fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}
