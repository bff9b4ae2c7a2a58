//! The tests of this package hold `spec/` against the code.
