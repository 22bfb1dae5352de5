//! Standard output, buffered; the command ends quietly when its reader closes it.

use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

use crate::failure::Failure;

/// Standard output.
pub(crate) struct Output {
    writer: BufWriter<Stdout>,
    terminal: bool,
}

impl Output {
    pub fn new() -> Output {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        Output { writer: BufWriter::with_capacity(1 << 16, stdout), terminal }
    }

    /// Whether it is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.writer.write_all(bytes).map_err(Failure::output)
    }

    pub fn line(&mut self, text: impl AsRef<str>) -> Result<(), Failure> {
        self.bytes(text.as_ref().as_bytes())?;
        self.bytes(b"\n")
    }

    pub fn json(&mut self, value: &serde_json::Value) -> Result<(), Failure> {
        self.line(value.to_string())
    }

    pub fn flush(&mut self) -> Result<(), Failure> {
        self.writer.flush().map_err(Failure::output)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}
