//! The bytes of a trace file, decompressed while they are read.
//!
//! A compressed file is known by its first bytes, not by its name. A file that ends early is an error
//! where it ends: what was read before it has gone to the analysis, and must not stand for the whole.
//!
//! Invariant: an error of the file itself and damage of what it holds are told apart.

use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::StreamingDecoder;

/// Bytes read from the file at once.
const FILE_BUFFER: usize = 256 << 10;

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip, one member or more.
    Gzip,
    /// xz, one stream or more.
    Xz,
    /// Zstandard, one frame or more.
    Zstd,
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "not compressed",
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
        })
    }
}

/// What is known of the file below the decompression.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    bytes: Cell<u64>,
    failed: Cell<bool>,
}

impl Gauge {
    /// Bytes of the file that were read.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Whether the system refused to read, so that an error is not the file's.
    pub(super) fn failed(&self) -> bool {
        self.failed.get()
    }
}

struct Gauged {
    file: File,
    gauge: Rc<Gauge>,
}

impl Read for Gauged {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer).inspect_err(|_| self.gauge.failed.set(true))?;
        self.gauge.bytes.set(self.gauge.bytes.get() + read as u64);
        Ok(read)
    }
}

/// An open file, its bytes to be read decompressed.
pub(super) struct Source {
    pub(super) bytes: Box<dyn Read>,
    pub(super) compression: Compression,
    pub(super) gauge: Rc<Gauge>,
    pub(super) file_bytes: u64,
}

pub(super) fn open(path: &Path) -> io::Result<Source> {
    let file = File::open(path)?;
    let file_bytes = file.metadata()?.len();
    let gauge = Rc::new(Gauge::default());
    let mut file = BufReader::with_capacity(FILE_BUFFER, Gauged { file, gauge: Rc::clone(&gauge) });
    let (bytes, compression): (Box<dyn Read>, _) = match file.fill_buf()? {
        [0x1f, 0x8b, ..] => (Box::new(MultiGzDecoder::new(file)), Compression::Gzip),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => (Box::new(XzReader::new(file, true)), Compression::Xz),
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            (Box::new(Frames { state: Frame::Between(file) }), Compression::Zstd)
        }
        [b'B', b'Z', b'h', b'1'..=b'9', b'1', b'A', b'Y', b'&', ..] => return Err(foreign("bzip2")),
        [b'P', b'K', 3, 4, ..] => return Err(foreign("zip")),
        _ => (Box::new(file), Compression::None),
    };
    Ok(Source { bytes, compression, gauge, file_bytes })
}

fn foreign(name: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        format!("it is compressed with {name}; gzip, xz and zstd are understood"),
    )
}

type FileBuffer = BufReader<Gauged>;
type FrameBytes = io::Chain<Cursor<[u8; 4]>, FileBuffer>;
type FrameDecoder = StreamingDecoder<FrameBytes, ruzstd::decoding::FrameDecoder>;

/// Zstandard frames one after another, each with its checksum compared.
struct Frames {
    state: Frame,
}

enum Frame {
    Between(FileBuffer),
    Within(Box<FrameDecoder>),
    Ended,
}

impl Read for Frames {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            self.state = match std::mem::replace(&mut self.state, Frame::Ended) {
                Frame::Ended => return Ok(0),
                Frame::Between(mut file) => {
                    if file.fill_buf()?.is_empty() {
                        return Ok(0);
                    }
                    next_frame(file)?
                }
                Frame::Within(mut frame) => {
                    let read = frame.read(buffer)?;
                    if read > 0 {
                        self.state = Frame::Within(frame);
                        return Ok(read);
                    }
                    let decoder = &frame.decoder;
                    let promised = decoder.get_checksum_from_data();
                    if promised.is_some() && promised != decoder.get_calculated_checksum() {
                        return Err(io::Error::new(io::ErrorKind::InvalidData, "a checksum does not match"));
                    }
                    Frame::Between(frame.into_inner().into_inner().1)
                }
            };
        }
    }
}

/// Begins a frame; passes over a skippable one, which holds no data of ours.
fn next_frame(mut file: FileBuffer) -> io::Result<Frame> {
    let mut magic = [0; 4];
    file.read_exact(&mut magic)?;
    if (0x184d_2a50..=0x184d_2a5f).contains(&u32::from_le_bytes(magic)) {
        let mut length = [0; 4];
        file.read_exact(&mut length)?;
        let bytes = u64::from(u32::from_le_bytes(length));
        let skipped = io::copy(&mut (&mut file).take(bytes), &mut io::sink())?;
        return if skipped == bytes {
            Ok(Frame::Between(file))
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        };
    }
    let decoder = StreamingDecoder::new(Cursor::new(magic).chain(file))
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
    Ok(Frame::Within(Box::new(decoder)))
}
