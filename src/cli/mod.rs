//! One module per subcommand of `portcullis`.

pub mod ca;
