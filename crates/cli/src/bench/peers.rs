//! The peers (cuBLAS, PyTorch, Triton), in a Python process of their own.
//!
//! The script is part of this binary. It is started once, gets inputs as files,
//! and is asked for one sample at a time, so that its samples and ours alternate.

use heist_launch::{Buffer, ElementType, Time};
use serde_json::{Value, json};
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const SCRIPT: &str = include_str!("../../include/peers.py");
const TRITON: &str = include_str!("../../include/peers_triton.py");

/// A tensor with a name, dense, the last axis fastest.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// What the peers call it.
    pub name: &'static str,
    /// How many elements along each axis.
    pub shape: Vec<usize>,
    /// The elements.
    pub data: Buffer,
}

/// A problem as the peers are given it.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Which family of kernels solves it: `gemm`, `grouped-gemm`, `attention`.
    pub family: &'static str,
    /// What there is.
    pub inputs: Vec<Tensor>,
    /// What else there is to know, as the family's peers expect it.
    pub options: Value,
    /// What the elements of the result are.
    pub output: ElementType,
    /// How many calls are captured into the graph that one sample replays.
    pub calls: u32,
}

impl Problem {
    /// The request to a peer. It names the type of the result: results of another type can't be
    /// compared.
    fn request(&self, peer: &str) -> Value {
        json!({
            "op": "prepare", "family": self.family, "peer": peer, "options": self.options,
            "dtype": self.output.as_str(), "calls": self.calls,
        })
    }
}

/// Why there is no answer from the peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerError {
    /// There are none on this machine.
    NotHere(String),
    /// This one can't do this problem.
    Unable(String),
}

impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerError::NotHere(why) => write!(
                f,
                "no peers to compare with: {why}. They need Python with PyTorch; name one with \
                 --python, or leave them out with --no-peers"
            ),
            PeerError::Unable(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for PeerError {}

/// The running peers.
pub struct Peers {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    folder: Folder,
    /// Versions of what was found, for the record.
    pub versions: Value,
    asked: usize,
}

/// A problem that the peers hold the inputs of.
#[derive(Debug)]
pub struct Posed<'p> {
    id: String,
    problem: &'p Problem,
}

/// One peer that is ready to be sampled.
#[derive(Debug)]
pub struct PreparedPeer {
    id: String,
    /// Its result.
    pub result: Buffer,
}

impl Peers {
    /// Starts them with a Python interpreter.
    ///
    /// # Errors
    /// When the interpreter, PyTorch, or its GPU is not there.
    pub fn start(python: &Path) -> Result<Peers, PeerError> {
        let not_here = |what: &str, error: std::io::Error| {
            PeerError::NotHere(format!("{what} {}: {error}", python.display()))
        };
        let folder = Folder::new().map_err(|error| not_here("no folder for", error))?;
        let script = folder.file("peers.py");
        for (path, text) in [
            (script.clone(), SCRIPT),
            (folder.file("peers_triton.py"), TRITON),
        ] {
            std::fs::write(path, text).map_err(|error| not_here("no script for", error))?;
        }
        let mut child = Command::new(python)
            .arg(&script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| not_here("can't start", error))?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(PeerError::NotHere("its pipes are missing".into()));
        };
        let mut peers = Peers {
            child,
            requests,
            answers: BufReader::new(answers),
            folder,
            versions: Value::Null,
            asked: 0,
        };
        let hello = peers
            .ask(&json!({ "op": "hello" }))
            .map_err(|error| match error {
                PeerError::Unable(why) | PeerError::NotHere(why) => PeerError::NotHere(why),
            })?;
        peers.versions = hello;
        Ok(peers)
    }

    /// Gives the peers a problem's inputs, once for all of them.
    ///
    /// # Errors
    /// When they can't be written, or don't fit into the GPU's memory.
    pub fn pose<'p>(&mut self, problem: &'p Problem) -> Result<Posed<'p>, PeerError> {
        let id = self.next_id(problem.family);
        let mut inputs = serde_json::Map::new();
        let mut files = Vec::new();
        let mut written = Ok(());
        for tensor in &problem.inputs {
            let path = self.folder.file(&format!("{id}-{}", tensor.name));
            written = written.and(std::fs::write(&path, tensor.data.bytes()));
            inputs.insert(
                tensor.name.into(),
                json!({ "path": path, "dtype": tensor.data.ty().as_str(), "shape": tensor.shape }),
            );
            files.push(path);
        }
        let answer = match written {
            Ok(()) => self.ask(&json!({ "op": "load", "problem": id, "inputs": inputs })),
            Err(error) => Err(PeerError::Unable(format!("no room for inputs: {error}"))),
        };
        for file in files {
            // Litter in a temporary folder that goes away with us.
            let _ = std::fs::remove_file(file);
        }
        answer.map(|_| Posed { id, problem })
    }

    /// Lets a peer solve a problem once.
    ///
    /// # Errors
    /// When it can't, with its own words.
    pub fn prepare(&mut self, peer: &str, posed: &Posed<'_>) -> Result<PreparedPeer, PeerError> {
        let id = self.next_id(peer);
        let problem = posed.problem;
        let output = self.folder.file(&format!("{id}-output"));
        let mut request = problem.request(peer);
        request["problem"] = posed.id.as_str().into();
        request["id"] = id.as_str().into();
        request["output"] = output.display().to_string().into();
        let answer = self.ask(&request);
        let bytes = answer.and_then(|_| {
            std::fs::read(&output)
                .map_err(|error| PeerError::Unable(format!("it left no result: {error}")))
        });
        let _ = std::fs::remove_file(output);
        let result = Buffer::from_bytes(problem.output, bytes?).ok_or_else(|| {
            PeerError::Unable(format!("its result is not whole {}s", problem.output))
        })?;
        Ok(PreparedPeer { id, result })
    }

    fn next_id(&mut self, what: &str) -> String {
        self.asked += 1;
        format!("{}-{what}", self.asked)
    }

    /// One sample: the time of one call on a cold cache, or of so many launches back to back.
    ///
    /// # Errors
    /// When the process or the GPU failed.
    pub fn sample(
        &mut self,
        peer: &PreparedPeer,
        launches: Option<u32>,
    ) -> Result<Time, PeerError> {
        let mut request = json!({ "op": "sample", "id": peer.id });
        if let Some(launches) = launches {
            request["launches"] = launches.into();
            request["lead"] = super::lead(launches).into();
        }
        let answer = self.ask(&request)?;
        match answer["ns"].as_f64() {
            Some(ns) => Ok(Time::from_ns_f64(ns)),
            None => Err(PeerError::Unable(format!("no time in {answer}"))),
        }
    }

    /// Frees what problems and peers hold on the GPU.
    pub fn forget(&mut self) {
        // If the request fails, the process is gone, and so is its memory.
        let _ = self.ask(&json!({ "op": "forget" }));
    }

    fn ask(&mut self, request: &Value) -> Result<Value, PeerError> {
        let gone = |why: String| PeerError::NotHere(format!("the Python process ended ({why})"));
        writeln!(self.requests, "{request}").map_err(|error| gone(error.to_string()))?;
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(0) => return Err(gone("no answer".into())),
            Ok(_) => {}
            Err(error) => return Err(gone(error.to_string())),
        }
        let answer: Value = serde_json::from_str(&line)
            .map_err(|error| PeerError::Unable(format!("not an answer: {error}")))?;
        if let Some(why) = answer["error"].as_str() {
            return Err(PeerError::NotHere(why.to_owned()));
        }
        match answer["unavailable"].as_str() {
            Some(why) => Err(PeerError::Unable(why.to_owned())),
            None => Ok(answer),
        }
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        // It only waits for requests; there is nothing to lose.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A temporary folder, removed with its contents.
struct Folder(PathBuf);

impl Folder {
    fn new() -> std::io::Result<Folder> {
        let path = std::env::temp_dir().join(format!("heist-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Folder(path))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interpreter_that_is_not_there_is_an_answer() {
        let error = Peers::start(Path::new("no-such-python")).err().unwrap();
        assert!(error.to_string().contains("no-such-python"), "{error}");
        assert!(error.to_string().contains("--no-peers"), "{error}");
    }

    #[test]
    fn a_peer_is_told_the_type_of_the_result() {
        let problem = Problem {
            family: "gemm",
            inputs: Vec::new(),
            options: json!({ "layout": "nt" }),
            output: ElementType::F32,
            calls: 1,
        };
        assert_eq!(problem.request("cublas")["dtype"], "f32");
        // The script gives results of that type, or says that it can't.
        for part in ["request[\"dtype\"]", "out_dtype="] {
            assert!(SCRIPT.contains(part), "{part}");
        }
    }

    #[test]
    fn a_process_that_ends_at_once_is_an_answer() {
        let Err(error) = Peers::start(Path::new("true")) else {
            panic!("`true` is no interpreter");
        };
        assert!(matches!(error, PeerError::NotHere(_)), "{error}");
    }
}
