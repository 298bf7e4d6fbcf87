//! `portcullis policy`: compile mTLS policies, decide connections by them, and say in words what they mean.
//!
//! It works on files alone, through the same functions that the gateway compiles and decides with. Results go
//! to stdout, diagnostics to stderr. Exit codes: 0 fine, 1 something could not be read, 2 wrong usage; a
//! connection being denied is no error.

mod evaluate;
mod explain;
mod input;
mod workload;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use self::input::Documents;
use self::workload::WorkloadArgs;
use crate::compile::policies::{Mesh, Policies, compile_policies};
use crate::diagnostics::{Diagnostic, Severity};
use crate::snapshot::policies::STATIC_STRICT;
use crate::store::objects::{ObjectName, document};

/// Compile, try and explain mTLS policies.
#[derive(Args, Debug)]
pub struct PolicyArgs {
    #[command(subcommand)]
    command: PolicyCommand,
}

#[derive(Subcommand, Debug)]
enum PolicyCommand {
    /// Print the Authorization documents that PeerAuthentications and AuthorizationPolicies convert to.
    Compile(CompileArgs),
    /// Decide whether connections are allowed, by which policy and why.
    Evaluate(evaluate::EvaluateArgs),
    /// Say in words what a workload accepts, and which object says so.
    Explain(ExplainArgs),
}

/// Where policies come from, and the mesh that they are for.
#[derive(Args, Debug)]
struct PolicyInput {
    /// YAML or JSON documents: a file, a directory, or '-' for stdin, which is also the default.
    #[arg(short = 'f', long = "file", value_name = "PATH")]
    files: Vec<PathBuf>,

    /// Policies of this namespace apply to the whole mesh.
    #[arg(long, value_name = "NAME", default_value = "istio-system")]
    root_namespace: String,

    /// The trust domain of the mesh; `cluster.local` in principals means it too.
    #[arg(long, value_name = "NAME", default_value = "cluster.local")]
    trust_domain: String,

    /// Another name of the trust domain; may be repeated.
    #[arg(long = "trust-domain-alias", value_name = "NAME")]
    trust_domain_aliases: Vec<String>,
}

#[derive(Args, Debug)]
struct CompileArgs {
    #[command(flatten)]
    input: PolicyInput,

    #[command(flatten)]
    workload: WorkloadArgs,

    /// Print the static STRICT policy too, which is always the same.
    #[arg(long)]
    with_static: bool,
}

#[derive(Args, Debug)]
struct ExplainArgs {
    #[command(flatten)]
    input: PolicyInput,

    #[command(flatten)]
    workload: WorkloadArgs,
}

impl PolicyArgs {
    /// Runs the command and reports how it went.
    ///
    /// # Errors
    /// Something cannot be read or written.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            PolicyCommand::Compile(args) => compile(args),
            PolicyCommand::Evaluate(args) => evaluate::run(args),
            PolicyCommand::Explain(args) => explain(args),
        }
    }
}

fn compile(args: CompileArgs) -> anyhow::Result<ExitCode> {
    match &args.workload.workload {
        Some(workload) => print_keys(&args, workload),
        None if args.workload.has_labels() => {
            Ok(wrong_usage("--labels is about a workload: say --workload too"))
        }
        None => print_documents(&args),
    }
}

fn print_documents(args: &CompileArgs) -> anyhow::Result<ExitCode> {
    let documents = args.input.read("")?;
    let policies = documents.compile(&args.input.mesh());
    let printed = policies.authorizations().values().filter(|policy| {
        (args.with_static || *policy.name.name != *STATIC_STRICT) && !policies.is_refused(&policy.name)
    });
    print(&document::to_yaml(printed.map(|policy| &**policy)))?;
    if !documents.authorizations.is_empty() {
        eprintln!("info: Authorization documents need no compiling and are left out");
    }
    Ok(report(&documents, &policies))
}

fn print_keys(args: &CompileArgs, workload: &ObjectName) -> anyhow::Result<ExitCode> {
    let documents = args.input.read(args.workload.default_namespace())?;
    let policies = documents.compile(&args.input.mesh());
    let keys = policies.keys(&workload.namespace, args.workload.labels());
    print(&keys.iter().map(|key| format!("{key}\n")).collect::<String>())?;
    Ok(report(&documents, &policies))
}

fn explain(args: ExplainArgs) -> anyhow::Result<ExitCode> {
    let documents = args.input.read(args.workload.default_namespace())?;
    let mesh = args.input.mesh();
    let policies = documents.compile(&mesh);
    let workload = match args.workload.choose(&documents, &mesh) {
        Ok(workload) => workload,
        Err(ambiguous) => return Ok(wrong_usage(&ambiguous)),
    };
    let applicable = workload.policies(&documents, &policies);
    print(&explain::explain(&policies, &workload, &applicable))?;
    Ok(report(&documents, &policies))
}

impl PolicyInput {
    fn read(&self, default_namespace: &str) -> anyhow::Result<Documents> {
        input::read(&self.files, default_namespace)
    }

    fn is_stdin(&self) -> bool {
        self.files.is_empty() || self.files.iter().any(|path| path.as_os_str() == "-")
    }

    fn mesh(&self) -> Mesh {
        Mesh {
            root_namespace: self.root_namespace.clone(),
            trust_domain: self.trust_domain.clone(),
            trust_domain_aliases: self.trust_domain_aliases.clone(),
        }
    }
}

impl Documents {
    fn compile(&self, mesh: &Mesh) -> Policies {
        compile_policies(mesh, &self.peer_authentications, &self.authorization_policies)
    }
}

/// Prints all diagnostics; the exit code says whether one is an error.
fn report(documents: &Documents, policies: &Policies) -> ExitCode {
    let of_compiling = policies.diagnostics.iter().map(|finding| documents.located(finding));
    let all: Vec<_> = documents.diagnostics.iter().cloned().chain(of_compiling).collect();
    all.iter().for_each(print_diagnostic);
    match all.iter().any(|diagnostic| diagnostic.severity == Severity::Error) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

fn print_diagnostic(diagnostic: &Diagnostic) {
    let severity = match diagnostic.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "info",
    };
    eprintln!("{severity}: {diagnostic}");
}

fn wrong_usage(message: &str) -> ExitCode {
    eprintln!("error: {message}");
    ExitCode::from(2)
}

/// Writes to stdout, where a reader that went away is an error rather than a panic.
fn print(text: &str) -> anyhow::Result<()> {
    Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
}
