//! State that travels through the client, and comes back unchanged or not at all.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

/// Signs states, and knows its own signature again.
#[derive(Clone)]
pub struct Seal([u8; 32]);

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal(…)")
    }
}

impl Default for Seal {
    /// A key of its own for each process. The standard library's random keys do
    /// for a test server; a real one takes its key from where it keeps secrets,
    /// and shares it between replicas.
    fn default() -> Self {
        let mut hash = Sha256::new();
        for _ in 0..4 {
            hash.update(RandomState::new().build_hasher().finish().to_le_bytes());
        }
        Self(hash.finalize().into())
    }
}

impl Seal {
    /// The state with its signature, for `requestState`.
    #[must_use]
    pub fn sign(&self, state: &str) -> String {
        format!("{state}.{}", self.signature(state))
    }

    /// The state, if the signature is ours and belongs to it.
    #[must_use]
    pub fn open<'a>(&self, signed: &'a str) -> Option<&'a str> {
        let (state, signature) = signed.rsplit_once('.')?;
        let expected = self.signature(state);
        // Looks at every byte, whichever differs first.
        let differences = signature.bytes().zip(expected.bytes());
        let difference = differences.fold(0, |all, (a, b)| all | (a ^ b));
        (signature.len() == expected.len() && difference == 0).then_some(state)
    }

    /// HMAC-SHA256 (RFC 2104), in letters that fit into a string.
    fn signature(&self, state: &str) -> String {
        let pad = |byte: u8| {
            let mut block = [byte; 64];
            for (padded, key) in block.iter_mut().zip(self.0) {
                *padded ^= key;
            }
            block
        };
        let inner = Sha256::new()
            .chain_update(pad(0x36))
            .chain_update(state)
            .finalize();
        let outer = Sha256::new()
            .chain_update(pad(0x5c))
            .chain_update(inner)
            .finalize();
        URL_SAFE_NO_PAD.encode(outer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_comes_back_as_it_was_or_not_at_all() {
        let seal = Seal::default();
        let signed = seal.sign("round.1");
        assert_eq!(seal.open(&signed), Some("round.1"));
        assert_eq!(seal.open(&format!("{signed}-TAMPERED")), None);
        assert_eq!(seal.open(&signed.replace("round.1", "round.2")), None);
        assert_eq!(seal.open("round.1"), None);
        assert_eq!(seal.open(""), None);
        assert_eq!(Seal([7; 32]).open(&signed), None);
    }

    #[test]
    fn the_signature_is_the_one_of_rfc_4231() {
        // Section 4.2, whose key of twenty bytes zeros fill up to ours.
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        assert_eq!(
            URL_SAFE_NO_PAD
                .decode(Seal(key).signature("Hi There"))
                .unwrap(),
            [
                0xb0, 0x34, 0x4c, 0x61, 0xd8, 0xdb, 0x38, 0x53, 0x5c, 0xa8, 0xaf, 0xce, 0xaf, 0x0b,
                0xf1, 0x2b, 0x88, 0x1d, 0xc2, 0x00, 0xc9, 0x83, 0x3d, 0xa7, 0x26, 0xe9, 0x37, 0x6c,
                0x2e, 0x32, 0xcf, 0xf7,
            ]
        );
    }
}
