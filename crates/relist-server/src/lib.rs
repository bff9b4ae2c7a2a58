//! Serves catalogs that change while clients are connected.
//!
//! So far this room holds one piece: [`prepared`], answers that are serialised
//! and compressed once for each version of a catalog and completed by a short
//! tail for each request.

pub mod prepared;
