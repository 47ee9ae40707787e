//! Traces as files: every format, every compression, every damage.

use std::io::Write as _;

use super::*;

/// Requests that every format can say: whole sectors, whole microseconds.
fn requests() -> Vec<Request> {
    (0..500_u64)
        .map(|i| Request {
            time_ns: 1_000_000 * i,
            write: i % 3 != 0,
            offset: (i * 7919 % 100_003) * 512,
            length: (i % 64 + 1) as u32 * 512,
        })
        .collect()
}

fn as_bytes(format: &str, requests: &[Request]) -> Vec<u8> {
    let mut bytes = Vec::new();
    if format == "drill" {
        bytes.extend_from_slice(b"time,operation,offset,length\n");
    }
    for Request { time_ns, write, offset, length } in requests.iter().copied() {
        let word = if write { "write" } else { "read" };
        let type_number = u8::from(!write);
        let (sector, sectors) = (offset / 512, length / 512);
        match format {
            "drill" => writeln!(bytes, "{},{word},{offset},{length}", time_ns as f64 / 1e9),
            "msr" => writeln!(bytes, "{},hm,1,{word},{offset},{length},413", time_ns / 100),
            "msr-text" => {
                writeln!(bytes, "{:.3} 0 {offset} {length} {type_number}", time_ns as f64 / 1e6)
            }
            "mqsim" => writeln!(bytes, "{time_ns} 0 {sector} {sectors} {type_number}"),
            "blkparse" => {
                let (s, ns) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000);
                let kind = if write { "WS" } else { "R" };
                for action in ["Q", "G", "D", "C"] {
                    writeln!(
                        bytes,
                        "  8,0    3 1 {s:5}.{ns:09}   697  {action}  {kind} {sector} + {sectors} [kj]"
                    )
                    .expect("memory");
                }
                Ok(())
            }
            "vscsi" => {
                let command = if write { 0x2a_u16 } else { 0x28 };
                bytes.extend_from_slice(&[0, 0, 0, 0x80]);
                bytes.extend_from_slice(&length.to_le_bytes());
                bytes.extend_from_slice(&1_u32.to_le_bytes());
                bytes.extend_from_slice(&command.to_le_bytes());
                bytes.extend_from_slice(&0x100_u16.to_le_bytes());
                bytes.extend_from_slice(&sector.to_le_bytes());
                bytes.write_all(&(time_ns / 1_000).to_le_bytes())
            }
            other => panic!("{other}"),
        }
        .expect("memory");
    }
    bytes
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let options = lzma_rust2::XzOptions::with_preset(1);
    let mut encoder = lzma_rust2::XzWriter::new(Vec::new(), options).expect("memory");
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// Reads a file with these bytes to its end, or to its error.
fn read(bytes: &[u8], named: Option<FormatName>) -> Result<(TraceReader, Vec<Request>), ReadError> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("some.trace");
    std::fs::write(&path, bytes).expect("written");
    let mut reader = TraceReader::open(&path, named)?;
    let mut requests = Vec::new();
    while let Some((_, request)) = reader.next_request()? {
        requests.push(request);
    }
    Ok((reader, requests))
}

fn refused(bytes: &[u8], named: Option<FormatName>) -> String {
    match read(bytes, named) {
        Err(error) => error.to_string(),
        Ok((_, requests)) => panic!("{} requests were read", requests.len()),
    }
}

const FORMATS: [&str; 6] = ["drill", "msr", "msr-text", "mqsim", "blkparse", "vscsi"];

#[test]
fn every_format_is_recognised_and_gives_the_same_requests() {
    for name in FORMATS {
        let bytes = as_bytes(name, &requests());
        let (reader, read_back) = read(&bytes, None).expect(name);
        assert!(reader.format().to_string().starts_with(name), "{name}: {}", reader.format());
        assert_eq!(read_back, requests(), "{name}");
        assert_eq!(reader.damage(), (0, &[][..]), "{name}");
        assert_eq!((reader.late(), reader.volumes().len()), (0, 1), "{name}");
        let (_, named) = read(&bytes, Some(name.parse().expect(name))).expect(name);
        assert_eq!(named, requests(), "{name}");
    }
}

#[test]
fn addresses_have_an_order_and_no_times() {
    let (reader, requests) = read(b"s 0x1fffff50 1\nl 0x1fffff58 6\n", None).expect("a trace");
    assert!(!reader.format().has_times());
    let times: Vec<_> = requests.iter().map(|request| (request.time_ns, request.write)).collect();
    assert_eq!(times, [(0, true), (1, false)]);
}

#[test]
fn every_compression_is_seen_through_in_pieces_too() {
    for (name, compress) in [("gzip", gzip as fn(&[u8]) -> Vec<u8>), ("xz", xz), ("zstd", zstd)] {
        let bytes = as_bytes("msr", &requests());
        let (first, second) = bytes.split_at(bytes.len() / 3);
        let mut pieces = compress(first);
        pieces.extend(compress(second));
        for compressed in [compress(&bytes), pieces] {
            let (reader, read_back) = read(&compressed, None).expect(name);
            assert_eq!(reader.compression().to_string(), name);
            assert_eq!(read_back, requests(), "{name}");
            assert_eq!(reader.progress(), (compressed.len() as u64, compressed.len() as u64));
        }
    }
}

#[test]
fn a_skippable_frame_is_skipped() {
    let mut bytes = 0x184d_2a50_u32.to_le_bytes().to_vec();
    bytes.extend_from_slice(&7_u32.to_le_bytes());
    bytes.extend_from_slice(b"seven77");
    bytes.extend(zstd(&as_bytes("msr", &requests())));
    assert_eq!(read(&bytes, None).expect("a trace").1, requests());
}

#[test]
fn a_compressed_file_that_ends_early_is_an_error_wherever_it_ends() {
    let bytes = as_bytes("msr-text", &requests());
    for (name, compressed) in [("gzip", gzip(&bytes)), ("xz", xz(&bytes)), ("zstd", zstd(&bytes))] {
        for cut in [7, 20, compressed.len() / 2, compressed.len() - 1] {
            let error = refused(&compressed[..cut], None);
            assert!(error.contains(name), "{name} cut at {cut}: {error}");
        }
    }
}

#[test]
fn a_flipped_bit_in_a_compressed_file_never_passes_for_a_good_one() {
    let bytes = as_bytes("msr-text", &requests());
    for (name, good) in [("gzip", gzip(&bytes)), ("xz", xz(&bytes)), ("zstd", zstd(&bytes))] {
        for at in (10..good.len()).step_by(97) {
            let mut flipped = good.clone();
            flipped[at] ^= 0x10;
            if let Ok((reader, read_back)) = read(&flipped, None) {
                let same = read_back == requests() && reader.damage().0 == 0;
                assert!(same, "{name}: the flip at {at} went unseen");
            }
        }
    }
}

#[test]
fn damaged_lines_are_counted_and_the_first_ten_are_named() {
    let mut text = b"0.000 0 0 4096 0\n".to_vec();
    for line in 2..=31 {
        match line % 2 {
            0 => writeln!(text, "{line}.000 0 8192 4096 0").expect("memory"),
            _ => writeln!(text, "{line}.000 0 minus 4096 0").expect("memory"),
        }
    }
    let (reader, requests) = read(&text, None).expect("mostly good");
    let (damaged, listed) = reader.damage();
    assert_eq!((requests.len(), damaged, listed.len()), (16, 15, DAMAGE_LISTED));
    assert_eq!(listed[0].to_string(), "line 3: 'minus' is not a valid offset");
    assert_eq!(listed[9].place, Place::Line(21));
}

#[test]
fn damaged_records_are_named_by_their_byte() {
    let mut bytes = as_bytes("vscsi", &requests());
    bytes[32 * 100 + 15] = 9;
    bytes.truncate(bytes.len() - 5);
    let (reader, read_back) = read(&bytes, None).expect("mostly good");
    let (damaged, listed) = reader.damage();
    assert_eq!((read_back.len(), damaged), (498, 2));
    assert_eq!(listed[0].place, Place::Byte(3200));
    assert_eq!(listed[1].to_string(), format!("byte {}: the last record has only 27 bytes", 32 * 499));
}

#[test]
fn what_is_no_trace_is_one_clear_error() {
    let noise: Vec<u8> = (0..200_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let endless = vec![b'7'; 3 << 20];
    for (bytes, words) in [
        (&b""[..], "is empty"),
        (b"\n\n\n", "is empty"),
        (b"time,operation,offset,length\n", "is empty"),
        (&noise, "no format"),
        (&endless, "no format"),
        (b"PK\x03\x04 something", "zip"),
        (b"BZh91AY&SY something", "bzip2"),
    ] {
        let error = refused(bytes, None);
        assert!(error.contains(words), "{error}");
    }
    for name in format::NAMES.iter().map(|(_, name)| *name) {
        for bytes in [&noise, &endless] {
            refused(bytes, Some(name));
        }
    }
    let error = refused(&as_bytes("msr", &requests()), Some(FormatName::Mqsim));
    assert!(error.contains("500 damaged lines, 0 good; the first is line 1: must have"), "{error}");
}

#[test]
fn an_endless_line_among_good_ones_is_one_damaged_line() {
    let mut text = b"0.000 0 0 4096 0\n".repeat(3);
    text.extend(vec![b'x'; 5 << 20]);
    text.extend_from_slice(b"\n1.000 0 0 4096 0\n");
    let (reader, requests) = read(&text, None).expect("mostly good");
    assert_eq!((requests.len(), reader.damage().0), (4, 1));
    assert_eq!(reader.damage().1[0].to_string(), "line 4: longer than any line of the format");
}

#[test]
fn times_never_go_back_and_wild_ones_are_damage() {
    let text = b"5.0 0 0 4096 0\n9.0 0 0 4096 0\n7.0 0 0 4096 0\n99999999999.0 0 0 4096 0\n9.5 0 0 4096 0\n";
    let (reader, requests) = read(text, None).expect("mostly good");
    let times: Vec<_> = requests.iter().map(|request| request.time_ns / 100_000).collect();
    assert_eq!(times, [50, 90, 90, 95]);
    assert_eq!((reader.late(), reader.damage().0), (1, 1));
}

#[test]
fn volumes_are_told_apart_up_to_a_bound() {
    let text = b"1,hm,0,Read,0,512,1\n2,hm,1,Write,0,512,1\n3,src,0,Write,0,512,1\n4,hm,0,Read,0,512,1\n";
    let (reader, _) = read(text, None).expect("a trace");
    assert_eq!(reader.volumes(), ["hm.0", "hm.1", "src.0"]);
    let many: String = (0..=VOLUMES_MAX).map(|i| format!("{i} {i} 0 8 0\n")).collect();
    assert!(refused(many.as_bytes(), Some(FormatName::Mqsim)).contains("4096 volumes"));
}

#[test]
fn a_missing_file_and_a_directory_are_told_apart() {
    let missing = TraceReader::open(Path::new("/nowhere/at/all.csv"), None).err().expect("missing");
    assert!(matches!(missing, ReadError::Missing(_)), "{missing}");
    let directory = TraceReader::open(Path::new("/"), None).err().expect("a directory");
    assert!(matches!(directory, ReadError::System(..)), "{directory}");
}
