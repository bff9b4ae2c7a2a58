//! Blocks of content, as tools and prompts give them.

use serde_json::{Value, json};

/// One red pixel.
pub const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";

/// A wave file with no samples.
pub const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=";

/// A text.
#[must_use]
pub fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

/// The red pixel.
#[must_use]
pub fn image() -> Value {
    json!({ "type": "image", "data": PNG, "mimeType": "image/png" })
}

/// The silent wave file.
#[must_use]
pub fn audio() -> Value {
    json!({ "type": "audio", "data": WAV, "mimeType": "audio/wav" })
}

/// A resource that travels inside a result.
#[must_use]
pub fn resource(uri: &str, mime_type: &str, text: &str) -> Value {
    json!({
        "type": "resource",
        "resource": { "uri": uri, "mimeType": mime_type, "text": text },
    })
}
