//! One trace from file to findings, with the sizes of its volumes.
//!
//! A volume's size is what a person says, or else the highest byte that the trace touches: a lower bound,
//! which the report says beside every percentage of it.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::analyse::{Analysis, Findings, Options, Summary};
use crate::curve::distance::SAMPLE_PAGES;
use crate::read::{Damage, FormatName, ReadError, TraceReader};
use crate::request::PAGE_BYTES;

/// Requests between two calls of a progress bar.
pub(crate) const PROGRESS_EVERY: u64 = 1 << 16;

/// How to read and look at traces.
#[derive(Clone, Debug)]
pub struct StudyOptions {
    /// The format; recognised if not given.
    pub format: Option<FormatName>,
    /// Bytes of volumes: of the one with that name, or of all others.
    pub volumes: Vec<VolumeSize>,
    /// Written pages up to which the curve is exact.
    pub sample_pages: u32,
}

impl Default for StudyOptions {
    fn default() -> Self {
        Self { format: None, volumes: Vec::new(), sample_pages: SAMPLE_PAGES }
    }
}

/// A size that a person gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSize {
    /// The volume; all that are not named otherwise if none.
    pub name: Option<String>,
    /// Its bytes.
    pub bytes: u64,
}

/// Why there is no study.
#[derive(Debug)]
pub enum StudyError {
    /// The trace cannot be read.
    Read(ReadError),
    /// A size is given for a volume that is not in the trace.
    NoSuchVolume {
        /// The trace.
        path: PathBuf,
        /// The volume.
        name: String,
        /// Those that are there.
        known: Vec<String>,
    },
    /// The trace goes beyond the size that was given.
    VolumeTooSmall {
        /// The trace.
        path: PathBuf,
        /// The volume.
        name: String,
        /// Bytes as given.
        bytes: u64,
        /// Bytes that are touched.
        seen: u64,
    },
}

impl fmt::Display for StudyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => error.fmt(f),
            Self::NoSuchVolume { path, name, known } => write!(
                f,
                "{} has no volume '{name}', but {}; see 'wattkeep plan --help'",
                path.display(),
                known.iter().take(16).map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
            ),
            Self::VolumeTooSmall { path, name, bytes, seen } => write!(
                f,
                "{} touches byte {seen} of volume '{name}', beyond the {bytes} bytes given; give --volume \
                 the size of the volume, or leave it out",
                path.display()
            ),
        }
    }
}

impl std::error::Error for StudyError {}

impl From<ReadError> for StudyError {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

/// What is known of one volume.
#[derive(Clone, Debug)]
pub struct Volume {
    /// As the trace names it.
    pub name: String,
    /// Pages it has.
    pub pages_total: u64,
    /// Whether a person gave its size.
    pub given: bool,
    /// Its numbers.
    pub summary: Summary,
}

/// What was found in one trace.
#[derive(Debug)]
pub struct Study {
    /// The file.
    pub path: PathBuf,
    /// Its format, for people.
    pub format: String,
    /// How it is compressed, for people.
    pub compression: String,
    /// Damaged lines.
    pub damaged: u64,
    /// The first of them.
    pub damage: Vec<Damage>,
    /// Requests that came later than their time, and were taken at the latest time seen.
    pub late: u64,
    /// Its volumes.
    pub volumes: Vec<Volume>,
    /// The numbers of all volumes together.
    pub whole: Summary,
    /// The rest.
    pub findings: Findings,
}

/// Reads and looks at the trace at `path`; `progress` hears of bytes read and bytes in all.
///
/// # Errors
/// The trace cannot be read, or the given sizes do not fit it.
pub fn study(
    path: &Path,
    options: &StudyOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Study, StudyError> {
    let mut reader = TraceReader::open(path, options.format)?;
    let timed = reader.format().has_times();
    let mut analysis = Analysis::new(&Options { timed, sample_pages: options.sample_pages });
    let mut requests = 0_u64;
    while let Some((volume, request)) = reader.next_request()? {
        analysis.request(volume, request);
        requests += 1;
        if requests.is_multiple_of(PROGRESS_EVERY) {
            let (done, all) = reader.progress();
            progress(done, all);
        }
    }
    let findings = analysis.finish();
    let volumes = volumes(&reader, &findings, &options.volumes)?;
    let whole = findings.whole(volumes.iter().map(|volume| volume.pages_total).sum());
    let (damaged, damage) = reader.damage();
    Ok(Study {
        path: path.to_owned(),
        format: reader.format().to_string(),
        compression: reader.compression().to_string(),
        damaged,
        damage: damage.to_vec(),
        late: reader.late(),
        volumes,
        whole,
        findings,
    })
}

fn volumes(
    reader: &TraceReader,
    findings: &Findings,
    sizes: &[VolumeSize],
) -> Result<Vec<Volume>, StudyError> {
    let names = reader.volumes();
    for size in sizes {
        if let Some(name) = &size.name
            && !names.contains(name)
        {
            let (path, known) = (reader.path().to_owned(), names.to_vec());
            return Err(StudyError::NoSuchVolume { path, name: name.clone(), known });
        }
    }
    // A volume whose every line was damaged after its name has no numbers; it was named, no more.
    (0..findings.volumes())
        .map(|number| {
            let name = &names[number];
            let named = sizes.iter().find(|size| size.name.as_ref() == Some(name));
            let size = named.or_else(|| sizes.iter().find(|size| size.name.is_none()));
            let seen = findings.bytes_seen(number);
            let pages_total = match size {
                None => seen.div_ceil(PAGE_BYTES),
                Some(size) if size.bytes < seen => {
                    return Err(StudyError::VolumeTooSmall {
                        path: reader.path().to_owned(),
                        name: name.clone(),
                        bytes: size.bytes,
                        seen,
                    });
                }
                Some(size) => size.bytes.div_ceil(PAGE_BYTES),
            };
            let summary = findings.volume(number, pages_total);
            Ok(Volume { name: name.clone(), pages_total, given: size.is_some(), summary })
        })
        .collect()
}
