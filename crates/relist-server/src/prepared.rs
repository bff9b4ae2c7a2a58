//! Bodies compressed once and sent often.
//!
//! A page of a catalog is serialised and compressed once per version. The
//! answers that carry it differ in their last bytes only, because the request's
//! id is written last: `{"jsonrpc":"2.0","result":{…}` and then `,"id":7}`. All
//! three codings let a stream be cut at a byte boundary and be continued with a
//! block that holds plain bytes. So the costly part, the *head*, is kept
//! compressed, and a few bytes per answer, the *tail*, close the stream:
//!
//! | coding | kept | added for each answer |
//! |---|---|---|
//! | gzip ([RFC 1952]) | member header, deflate blocks, a sync flush | stored blocks, the last one marked final; CRC-32 and length of the whole |
//! | br ([RFC 7932]) | stream header, meta-blocks, a flush | uncompressed meta-blocks and the empty last one |
//! | zstd ([RFC 8878]) | frame header, blocks, a flush | raw blocks, the last one marked |
//!
//! The result is one gzip member and one zstd frame. Streams of several would
//! be valid too, but many decoders stop after the first.
//!
//! [RFC 1952]: https://www.rfc-editor.org/rfc/rfc1952
//! [RFC 7932]: https://www.rfc-editor.org/rfc/rfc7932
//! [RFC 8878]: https://www.rfc-editor.org/rfc/rfc8878

use std::io;
use std::mem;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::HeaderValue;

/// Heads shorter than this many bytes are sent as they are: the answer fits
/// into one packet either way.
const WORTH_COMPRESSING: usize = 512;

/// Deflate's level, of 9.
const GZIP_LEVEL: u32 = 9;

/// Brotli's quality, of 11. The two above it save 8 and 10 per cent of the
/// bytes, for 6 and 19 times as much time.
const BROTLI_QUALITY: i32 = 9;

/// Brotli's window as a power of two: 4 MiB.
const BROTLI_WINDOW_LOG: i32 = 22;

/// Zstandard's level, of 22.
const ZSTD_LEVEL: i32 = 12;

/// The windows that we declare, as powers of two. A user agent need not accept
/// more than 8 MiB ([RFC 9659]), and a block must not be larger than the
/// window, so that a window of 128 KiB, the largest block, leaves blocks free.
///
/// [RFC 9659]: https://www.rfc-editor.org/rfc/rfc9659
const ZSTD_WINDOW_LOG: std::ops::RangeInclusive<u32> = 17..=23;

/// A content coding that we can send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Encoding {
    /// The bytes as they are.
    Identity,
    /// Gzip.
    Gzip,
    /// Brotli.
    Brotli,
    /// Zstandard.
    Zstd,
}

impl Encoding {
    /// In the order in which we like them, for a client that does not mind.
    const BY_PREFERENCE: [Self; 4] = [Self::Zstd, Self::Brotli, Self::Gzip, Self::Identity];

    /// The coding that the values of `Accept-Encoding` ask for ([RFC 9110,
    /// section 12.5.3]): the one with the highest weight and, among equals, the
    /// first of zstd, br, gzip and identity.
    ///
    /// Identity that the client does not mention, by name or as `*`, is
    /// acceptable but the last choice. With no header, and where nothing that
    /// we have is acceptable, the answer is [`Encoding::Identity`], since a
    /// body that is not asked for helps more than none. Members of the list
    /// that cannot be read count as absent, and of two that name the same
    /// coding the first counts.
    ///
    /// [RFC 9110, section 12.5.3]: https://www.rfc-editor.org/rfc/rfc9110#section-12.5.3
    pub(crate) fn negotiate<'a>(values: impl IntoIterator<Item = &'a HeaderValue>) -> Self {
        let mut named = [None; Self::BY_PREFERENCE.len()];
        let mut any_other = None;
        let members = values
            .into_iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','));
        for member in members {
            let Some((token, weight)) = weighted(member) else {
                continue;
            };
            let place = if token == "*" {
                &mut any_other
            } else if let Some(at) = Self::BY_PREFERENCE.iter().position(|e| e.is_named(token)) {
                &mut named[at]
            } else {
                continue;
            };
            place.get_or_insert(weight);
        }

        let mut best = (Self::Identity, 0);
        for (encoding, weight) in Self::BY_PREFERENCE.into_iter().zip(named) {
            let weight = weight.or(any_other).unwrap_or(0);
            if weight > best.1 {
                best = (encoding, weight);
            }
        }
        best.0
    }

    /// The name in `Content-Encoding`, or `None` where that header is left out.
    pub(crate) const fn token(self) -> Option<&'static str> {
        match self {
            Self::Identity => None,
            Self::Gzip => Some("gzip"),
            Self::Brotli => Some("br"),
            Self::Zstd => Some("zstd"),
        }
    }

    /// Codings are case-insensitive, and `x-gzip` is an old name of gzip ([RFC
    /// 9110, section 8.4.1]).
    ///
    /// [RFC 9110, section 8.4.1]: https://www.rfc-editor.org/rfc/rfc9110#section-8.4.1
    fn is_named(self, token: &str) -> bool {
        token.eq_ignore_ascii_case(self.token().unwrap_or("identity"))
            || (self == Self::Gzip && token.eq_ignore_ascii_case("x-gzip"))
    }
}

/// One member of an `Accept-Encoding` list: its coding, and its weight in
/// thousandths.
fn weighted(member: &str) -> Option<(&str, u16)> {
    let mut parts = member.split(';').map(str::trim);
    let token = parts.next().filter(|token| !token.is_empty())?;
    let mut weight = 1000;
    for parameter in parts {
        let (name, value) = parameter.split_once('=')?;
        if name.trim_end().eq_ignore_ascii_case("q") {
            weight = thousandths(value.trim_start())?;
        }
    }
    Some((token, weight))
}

/// A weight such as `0.25`: between 0 and 1, with three decimals at most.
fn thousandths(value: &str) -> Option<u16> {
    let (whole, decimals) = value.split_once('.').unwrap_or((value, ""));
    if decimals.len() > 3 || !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let decimals: u16 = format!("{decimals:0<3}").parse().ok()?;
    match (whole, decimals) {
        ("0", _) => Some(decimals),
        ("1", 0) => Some(1000),
        _ => None,
    }
}

/// The part that many answers share, with its compressed forms.
///
/// A compressed form is made when the first answer needs it; whoever asks in
/// the meantime waits for that one. For half a megabyte of catalog this takes
/// some tens of milliseconds of one processor. Clones share everything.
#[derive(Clone, Debug)]
pub(crate) struct PreparedBody(Arc<Forms>);

#[derive(Debug)]
struct Forms {
    head: Bytes,
    gzip: OnceLock<Option<GzipHead>>,
    brotli: OnceLock<Option<Bytes>>,
    zstd: OnceLock<Option<Bytes>>,
}

#[derive(Debug)]
struct GzipHead {
    compressed: Bytes,
    /// Has seen the head, and goes on with the tail in a clone.
    checksum: crc32fast::Hasher,
}

/// One answer's body: the shared head and the tail that closes it.
#[derive(Clone, Debug)]
pub(crate) struct Spliced {
    /// How the bytes are encoded. Identity where the head is not worth
    /// compressing, whatever was asked for.
    pub(crate) encoding: Encoding,
    /// The bytes, to be sent one behind the other.
    pub(crate) chunks: [Bytes; 2],
    /// The length of both chunks, in bytes: the value of `Content-Length`.
    pub(crate) len: usize,
}

impl Spliced {
    fn new(encoding: Encoding, head: Bytes, tail: Vec<u8>) -> Self {
        Self {
            encoding,
            len: head.len() + tail.len(),
            chunks: [head, Bytes::from(tail)],
        }
    }
}

impl PreparedBody {
    /// Prepares a head. Nothing is compressed yet.
    pub(crate) fn new(head: Bytes) -> Self {
        Self(Arc::new(Forms {
            head,
            gzip: OnceLock::new(),
            brotli: OnceLock::new(),
            zstd: OnceLock::new(),
        }))
    }

    /// The body that decodes to the head followed by `tail`.
    ///
    /// The encoding is `accepted`, or identity for a head too short to be worth
    /// compressing. The [`Spliced`] answer says which.
    pub(crate) fn respond(&self, accepted: Encoding, tail: &[u8]) -> Spliced {
        self.compressed(accepted, tail)
            .unwrap_or_else(|| Spliced::new(Encoding::Identity, self.0.head.clone(), tail.to_vec()))
    }

    fn compressed(&self, accepted: Encoding, tail: &[u8]) -> Option<Spliced> {
        let forms = &*self.0;
        let head = &*forms.head;
        if head.len() < WORTH_COMPRESSING {
            return None;
        }
        let (head, tail) = match accepted {
            Encoding::Identity => return None,
            Encoding::Gzip => {
                let kept = forms.gzip.get_or_init(|| kept(gzip::head(head)));
                let kept = kept.as_ref()?;
                let tail = gzip::tail(tail, head.len(), kept.checksum.clone());
                (kept.compressed.clone(), tail)
            }
            Encoding::Brotli => {
                let kept = forms.brotli.get_or_init(|| kept(brotli_stream::head(head)));
                (kept.clone()?, brotli_stream::tail(tail))
            }
            Encoding::Zstd => {
                let kept = forms.zstd.get_or_init(|| kept(zstd_frame::head(head)));
                (kept.clone()?, zstd_frame::tail(tail))
            }
        };
        Some(Spliced::new(accepted, head, tail))
    }
}

/// A head that cannot be compressed is sent as it is: slow, but right.
fn kept<T>(compressed: io::Result<T>) -> Option<T> {
    compressed
        .inspect_err(|error| tracing::warn!(%error, "cannot compress a prepared body"))
        .ok()
}

mod gzip {
    use super::{Bytes, GZIP_LEVEL, GzipHead, io, mem};
    use std::io::Write as _;

    /// No name, no time, compressed as well as we can, on no particular system.
    const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 0xff];

    /// What a stored block can hold.
    const BLOCK: usize = u16::MAX as usize;

    pub(super) fn head(head: &[u8]) -> io::Result<GzipHead> {
        let level = flate2::Compression::new(GZIP_LEVEL);
        let mut encoder = flate2::write::DeflateEncoder::new(HEADER.to_vec(), level);
        encoder.write_all(head)?;
        // Ends with an empty stored block, and so at a whole byte.
        encoder.flush()?;
        // Taken out, because finishing the encoder would close the stream.
        let compressed = Bytes::from(mem::take(encoder.get_mut()));
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(head);
        Ok(GzipHead {
            compressed,
            checksum,
        })
    }

    pub(super) fn tail(tail: &[u8], head_len: usize, mut checksum: crc32fast::Hasher) -> Vec<u8> {
        let blocks = tail.len().div_ceil(BLOCK).max(1);
        let mut out = Vec::with_capacity(tail.len() + 5 * blocks + 8);
        let mut rest = tail;
        loop {
            let (block, behind) = rest.split_at(rest.len().min(BLOCK));
            rest = behind;
            // The final bit, then two zeros for "stored", then padding.
            out.push(u8::from(rest.is_empty()));
            let len = block.len() as u16;
            out.extend_from_slice(&len.to_le_bytes());
            out.extend_from_slice(&(!len).to_le_bytes());
            out.extend_from_slice(block);
            if rest.is_empty() {
                break;
            }
        }
        checksum.update(tail);
        out.extend_from_slice(&checksum.finalize().to_le_bytes());
        // Modulo 2^32, as the format says.
        let len = (head_len + tail.len()) as u32;
        out.extend_from_slice(&len.to_le_bytes());
        out
    }
}

mod brotli_stream {
    use super::{BROTLI_QUALITY, BROTLI_WINDOW_LOG, Bytes, io, mem};
    use brotli::enc::BrotliEncoderParams;
    use std::io::Write as _;

    /// What a meta-block can hold whose length is written in four nibbles.
    const BLOCK: usize = 1 << 16;

    /// Where the length, less one, begins in a meta-block's header: behind
    /// ISLAST (one bit: no) and MNIBBLES (two bits: zero stands for four).
    const LEN_SHIFT: u32 = 3;

    /// ISUNCOMPRESSED, behind the sixteen bits of the length.
    const UNCOMPRESSED: u32 = 1 << (LEN_SHIFT + 16);

    /// ISLAST and ISLASTEMPTY.
    const END: u8 = 0b11;

    pub(super) fn head(head: &[u8]) -> io::Result<Bytes> {
        let params = BrotliEncoderParams {
            quality: BROTLI_QUALITY,
            lgwin: BROTLI_WINDOW_LOG,
            size_hint: head.len(),
            ..BrotliEncoderParams::default()
        };
        let mut encoder = brotli::CompressorWriter::with_params(Vec::new(), 1 << 16, &params);
        encoder.write_all(head)?;
        // Ends with an empty meta-block that pads to a whole byte.
        encoder.flush()?;
        // Taken out, because dropping the encoder closes the stream.
        Ok(Bytes::from(mem::take(encoder.get_mut())))
    }

    pub(super) fn tail(tail: &[u8]) -> Vec<u8> {
        let blocks = tail.len().div_ceil(BLOCK);
        let mut out = Vec::with_capacity(tail.len() + 3 * blocks + 1);
        for block in tail.chunks(BLOCK) {
            let header = UNCOMPRESSED | ((block.len() - 1) as u32) << LEN_SHIFT;
            // Twenty bits, and four of padding before the bytes.
            out.extend_from_slice(&header.to_le_bytes()[..3]);
            out.extend_from_slice(block);
        }
        out.push(END);
        out
    }
}

mod zstd_frame {
    use super::{Bytes, ZSTD_LEVEL, ZSTD_WINDOW_LOG, io, mem};
    use std::io::Write as _;

    /// What a block can hold: the window that we declare is never smaller.
    const BLOCK: usize = 1 << 17;

    pub(super) fn head(head: &[u8]) -> io::Result<Bytes> {
        // The smallest window that holds all of it: the decoder allocates that.
        let window_log = head.len().next_power_of_two().trailing_zeros();
        let window_log = window_log.clamp(*ZSTD_WINDOW_LOG.start(), *ZSTD_WINDOW_LOG.end());
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), ZSTD_LEVEL)?;
        // Neither is known before the tail is.
        encoder.include_checksum(false)?;
        encoder.include_contentsize(false)?;
        encoder.window_log(window_log)?;
        // Sizes the encoder's tables, which otherwise cost more than a small
        // head does. Only the end of a frame compares it, and we write our own;
        // a size below the smallest window would shrink the window too.
        let at_least = 1_u64 << ZSTD_WINDOW_LOG.start();
        encoder.set_pledged_src_size(Some(at_least.max(head.len() as u64)))?;
        encoder.write_all(head)?;
        encoder.flush()?;
        Ok(Bytes::from(mem::take(encoder.get_mut())))
    }

    pub(super) fn tail(tail: &[u8]) -> Vec<u8> {
        let blocks = tail.len().div_ceil(BLOCK).max(1);
        let mut out = Vec::with_capacity(tail.len() + 3 * blocks);
        let mut rest = tail;
        loop {
            let (block, behind) = rest.split_at(rest.len().min(BLOCK));
            rest = behind;
            // The last bit, then two zeros for "raw", then the size.
            let header = u32::from(rest.is_empty()) | (block.len() as u32) << 3;
            out.extend_from_slice(&header.to_le_bytes()[..3]);
            out.extend_from_slice(block);
            if rest.is_empty() {
                return out;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    const COMPRESSED: [Encoding; 3] = [Encoding::Gzip, Encoding::Brotli, Encoding::Zstd];

    /// Numbers that are the same in every run.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, limit: usize) -> usize {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let high = (self.0 >> 33) as usize;
            high % limit
        }
    }

    /// Text of `len` bytes that looks like a catalog.
    fn head(len: usize, numbers: &mut Numbers) -> Vec<u8> {
        const WORDS: [&str; 8] = [
            "repository",
            "Liste les éléments",
            "string",
            "required",
            "page",
            "日本",
            "of",
            "a",
        ];
        let mut text = String::from(r#"{"jsonrpc":"2.0","result":{"tools":["#);
        while text.len() < len {
            text.push_str(r#"{"name":""#);
            text.push_str(WORDS[numbers.below(8)]);
            text.push_str(&numbers.below(10_000).to_string());
            text.push_str(r#"","description":""#);
            for _ in 0..numbers.below(30) {
                text.push_str(WORDS[numbers.below(8)]);
                text.push(' ');
            }
            text.push_str(r#"","inputSchema":{"type":"object"}},"#);
        }
        let mut bytes = text.into_bytes();
        bytes.truncate(len);
        bytes
    }

    fn joined(spliced: &Spliced) -> Vec<u8> {
        let bytes = spliced.chunks.concat();
        assert_eq!(bytes.len(), spliced.len);
        bytes
    }

    /// Decodes with a decoder that stops at the end of the first stream, and
    /// fails unless that is the end of the bytes.
    fn decoded(spliced: &Spliced) -> Vec<u8> {
        let bytes = joined(spliced);
        let mut left = &bytes[..];
        let mut out = Vec::new();
        match spliced.encoding {
            Encoding::Identity => return bytes,
            Encoding::Gzip => {
                let mut decoder = flate2::bufread::GzDecoder::new(&mut left);
                decoder.read_to_end(&mut out).unwrap();
            }
            Encoding::Brotli => {
                brotli::BrotliDecompress(&mut left, &mut out).unwrap();
            }
            Encoding::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(&mut left)
                    .unwrap()
                    .single_frame();
                decoder.window_log_max(23).unwrap();
                decoder.read_to_end(&mut out).unwrap();
            }
        }
        assert!(left.is_empty(), "{:?} ends early", spliced.encoding);
        out
    }

    fn negotiated(value: &str) -> Encoding {
        Encoding::negotiate([&HeaderValue::from_str(value).unwrap()])
    }

    #[test]
    fn every_coding_gives_back_the_head_and_the_tail() {
        let tails: [&[u8]; 5] = [
            b"",
            b"}",
            br#","id":7}"#,
            br#","id":"0b7c9a3e-67f4-4a5e-8a9f-0d4f2a1e7c11"}"#,
            br#","_meta":{"a":"\u0000"},"id":1.5e300}"#,
        ];
        let mut numbers = Numbers(1);
        for len in [
            0,
            1,
            511,
            512,
            513,
            4_096,
            65_535,
            65_536,
            131_072,
            131_073,
            500_000,
            2 << 20,
        ] {
            let head = head(len, &mut numbers);
            let body = PreparedBody::new(head.clone().into());
            for accepted in COMPRESSED {
                for tail in tails {
                    let spliced = body.respond(accepted, tail);
                    let expected = if len < 512 {
                        Encoding::Identity
                    } else {
                        accepted
                    };
                    assert_eq!(spliced.encoding, expected, "{len}");
                    assert!(
                        decoded(&spliced) == [&head, tail].concat(),
                        "{accepted:?} {len}"
                    );
                }
            }
        }
    }

    #[test]
    fn any_head_goes_with_any_tail() {
        let mut numbers = Numbers(2);
        for round in 0..50 {
            let mut head = head(512 + numbers.below(20_000), &mut numbers);
            for _ in 0..numbers.below(500) {
                // Bytes that are no text and do not compress.
                head.push(numbers.below(256) as u8);
            }
            let tail: Vec<u8> = (0..numbers.below(200))
                .map(|_| numbers.below(256) as u8)
                .collect();
            let body = PreparedBody::new(head.clone().into());
            for accepted in COMPRESSED {
                let spliced = body.respond(accepted, &tail);
                assert_eq!(spliced.encoding, accepted);
                assert!(
                    decoded(&spliced) == [&head[..], &tail].concat(),
                    "{accepted:?} {round}"
                );
            }
        }
    }

    #[test]
    fn a_tail_longer_than_one_block_is_split() {
        let mut numbers = Numbers(3);
        let head = head(1_000, &mut numbers);
        let body = PreparedBody::new(head.clone().into());
        for len in [
            65_535, 65_536, 65_537, 131_070, 131_071, 131_072, 131_073, 400_000,
        ] {
            let tail = vec![b'7'; len];
            for accepted in COMPRESSED {
                let spliced = body.respond(accepted, &tail);
                assert!(
                    decoded(&spliced) == [&head[..], &tail].concat(),
                    "{accepted:?} {len}"
                );
            }
        }
    }

    #[test]
    fn the_added_bytes_are_what_the_formats_say() {
        let head = vec![b'a'; 600];
        let body = PreparedBody::new(head.into());
        let added = |accepted| body.respond(accepted, b",\"id\":7}").chunks[1].clone();

        assert_eq!(&added(Encoding::Brotli)[..], b"\x38\x00\x08,\"id\":7}\x03");
        assert_eq!(&added(Encoding::Zstd)[..], b"\x41\x00\x00,\"id\":7}");
        let gzip = added(Encoding::Gzip);
        assert_eq!(&gzip[..13], b"\x01\x08\x00\xf7\xff,\"id\":7}");
        assert_eq!(&gzip[17..], 608_u32.to_le_bytes());
    }

    #[test]
    fn the_head_is_compressed_once_and_shared() {
        let body = PreparedBody::new(head(10_000, &mut Numbers(4)).into());
        for accepted in COMPRESSED {
            let first = body.respond(accepted, b",\"id\":1}");
            let second = body.clone().respond(accepted, b",\"id\":2}");
            assert_eq!(first.chunks[0].as_ptr(), second.chunks[0].as_ptr());
            assert!(first.len < 5_000, "{accepted:?} takes {} bytes", first.len);
        }
    }

    #[test]
    fn a_zstd_frame_declares_no_size_no_checksum_and_a_window_of_8_mib_at_most() {
        for (len, window_log) in [(600, 17), (140_000, 18), (1 << 22, 22), (9 << 20, 23)] {
            let body = PreparedBody::new(vec![b' '; len].into());
            let frame = joined(&body.respond(Encoding::Zstd, b"}"));
            assert_eq!(frame[..4], 0xfd2f_b528_u32.to_le_bytes());
            assert_eq!(frame[4], 0, "no flag is set");
            assert_eq!(frame[5], (window_log - 10) << 3, "the window for {len}");
        }
    }

    #[test]
    fn the_heaviest_weight_wins_and_then_our_preference() {
        assert_eq!(negotiated("gzip"), Encoding::Gzip);
        assert_eq!(negotiated("gzip, deflate, br"), Encoding::Brotli);
        assert_eq!(negotiated("gzip, deflate, br, zstd"), Encoding::Zstd);
        assert_eq!(
            negotiated("zstd;q=0.5, br;q=0.501, gzip;q=0.25"),
            Encoding::Brotli
        );
        assert_eq!(negotiated("GZIP ; Q=1.000 , br;q=0.999"), Encoding::Gzip);
        assert_eq!(negotiated("x-gzip"), Encoding::Gzip);
        let values = ["deflate", "br"].map(HeaderValue::from_static);
        assert_eq!(Encoding::negotiate(&values), Encoding::Brotli);
    }

    #[test]
    fn a_star_stands_for_the_codings_not_named() {
        assert_eq!(negotiated("*"), Encoding::Zstd);
        assert_eq!(negotiated("zstd;q=0, *"), Encoding::Brotli);
        assert_eq!(negotiated("gzip, *;q=0.1"), Encoding::Gzip);
        assert_eq!(negotiated("gzip;q=0.5, *;q=0"), Encoding::Gzip);
        assert_eq!(negotiated("*;q=0.5, identity"), Encoding::Identity);
    }

    #[test]
    fn identity_is_the_last_choice_unless_it_is_asked_for() {
        assert_eq!(negotiated("identity, gzip;q=0.5"), Encoding::Identity);
        assert_eq!(negotiated("identity;q=0.5, gzip;q=0.5"), Encoding::Gzip);
        assert_eq!(negotiated("gzip;q=0.001"), Encoding::Gzip);
        assert_eq!(negotiated("identity;q=0, gzip;q=0.1"), Encoding::Gzip);
    }

    #[test]
    fn without_an_acceptable_coding_the_bytes_go_as_they_are() {
        assert_eq!(Encoding::negotiate([]), Encoding::Identity);
        for value in [
            "",
            "deflate",
            "gzip;q=0",
            "*;q=0",
            "identity;q=0",
            "br;q=0, gzip;q=0.000",
        ] {
            assert_eq!(negotiated(value), Encoding::Identity, "{value:?}");
        }
    }

    #[test]
    fn a_member_that_cannot_be_read_counts_as_absent() {
        for value in [
            "br;q=2",
            "br;q=1.001",
            "br;q=0.0001",
            "br;q=",
            "br;q",
            "br;q=-1",
            "br;q=.5",
            ";q=1",
        ] {
            assert_eq!(
                negotiated(&format!("gzip;q=0.1, {value}")),
                Encoding::Gzip,
                "{value:?}"
            );
        }
        assert_eq!(
            negotiated("br;q=0.1, br;q=0, gzip;q=0.05"),
            Encoding::Brotli
        );
    }
}
