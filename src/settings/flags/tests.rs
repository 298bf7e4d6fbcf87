use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    serve: ServeArgs,
}

fn parse(args: &[&str]) -> Result<ServeArgs, clap::Error> {
    Cli::try_parse_from([&["portcullis"], args].concat()).map(|cli| cli.serve)
}

#[test]
fn the_command_is_well_formed_and_has_every_flag() {
    let command = ServeArgs::augment_args(Command::new("serve"));
    command.clone().debug_assert();
    let names: Vec<_> = command.get_arguments().filter_map(Arg::get_long).collect();
    assert_eq!(names, [&["settings"], FLAGS].concat());
}

#[test]
fn what_is_not_given_stays_unset() {
    let args = parse(&["--http-port", "80"]).unwrap();
    assert_eq!(args.flags, [("http-port", Raw::Text("80".into()))]);
}

#[test]
fn flags_become_settings() {
    let args = parse(&[
        "--settings",
        "/etc/p.yaml",
        "--manifests",
        "/a",
        "--manifests=/b",
        "--bind-address",
        "127.0.0.1,::1",
        "--log-format",
        "json",
    ])
    .unwrap();
    assert_eq!(args.settings, Some("/etc/p.yaml".into()));
    let settings = Inputs { flags: args.flags, ..Inputs::default() }.load().unwrap().settings;
    assert_eq!(settings.manifests, [PathBuf::from("/a"), PathBuf::from("/b")]);
    assert_eq!(settings.bind_address.len(), 2);
    assert_eq!(settings.log_format.as_str(), "json");
}

#[test]
fn a_switch_by_itself_means_true() {
    let flags = |args| parse(args).unwrap().flags;
    let is = |value: &str| vec![("watch-ingress-without-class", Raw::Text(value.into()))];
    assert_eq!(flags(&["--watch-ingress-without-class"]), is("true"));
    assert_eq!(flags(&["--watch-ingress-without-class=false"]), is("false"));
    assert!(parse(&["--watch-ingress-without-class", "false"]).is_err(), "not the value of the flag");
}

#[test]
fn a_bad_value_is_wrong_usage_and_names_the_flag() {
    let error = parse(&["--http-port", "http"]).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    let error = error.to_string();
    assert!(error.contains("'http' for '--http-port <PORT>'"), "{error}");
    assert!(error.contains("expected a whole number from 0 to 65535"), "{error}");
}

#[test]
fn an_unknown_flag_is_wrong_usage_and_named() {
    let error = parse(&["--http-prot", "80"]).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("--http-prot"), "{error}");
    assert!(error.to_string().contains("--http-port"), "{error}");
}

#[test]
fn the_settings_file_may_come_from_the_environment() {
    let file = |args: &[&str], value: &str| {
        parse(args).unwrap().inputs([("PORTCULLIS_SETTINGS".into(), value.into())]).file
    };
    assert_eq!(file(&[], "/a.yaml"), Some("/a.yaml".into()));
    assert_eq!(file(&["--settings", "/b.yaml"], "/a.yaml"), Some("/b.yaml".into()));
    assert_eq!(file(&[], ""), None);
}
