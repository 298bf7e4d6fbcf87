//! A TCP proxy in front of an API server, whose connections can be made to hang, or cut.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::{fs, thread};

/// Runs until the test process ends.
pub struct Proxy {
    port: u16,
    /// Connections that began before this many others are cut off from the server, but stay open.
    hung: Arc<AtomicUsize>,
    begun: Arc<AtomicUsize>,
    /// Both sides of those that there are, or were.
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    /// Starts one in front of the server of a kubeconfig.
    pub fn start(kubeconfig: &Path) -> Self {
        let server = server_of(&fs::read_to_string(kubeconfig).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let proxy = Self { port, hung: Arc::default(), begun: Arc::default(), open: Arc::default() };
        let (hung, begun, open) = (proxy.hung.clone(), proxy.begun.clone(), proxy.open.clone());
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, number) = (client.unwrap(), begun.fetch_add(1, Ordering::SeqCst));
                let Ok(upstream) = TcpStream::connect(server) else { continue };
                open.lock().unwrap().extend([&client, &upstream].map(|stream| stream.try_clone().unwrap()));
                for (from, to) in [(&client, &upstream), (&upstream, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let hung = hung.clone();
                    thread::spawn(move || relay(from, to, || number < hung.load(Ordering::SeqCst)));
                }
            }
        });
        proxy
    }

    /// A kubeconfig that leads here.
    pub fn kubeconfig(&self, of: &Path) -> PathBuf {
        let text = fs::read_to_string(of).unwrap();
        let server = server_of(&text).to_string();
        let path = of.with_file_name("proxy.kubeconfig");
        fs::write(&path, text.replace(&server, &format!("127.0.0.1:{}", self.port))).unwrap();
        path
    }

    /// Ends every connection that there is.
    pub fn cut(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// From now on nothing comes through any connection that there is; new ones are fine.
    pub fn hang(&self) {
        self.hung.store(self.begun.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

fn server_of(kubeconfig: &str) -> SocketAddr {
    let (_, rest) = kubeconfig.split_once("https://").unwrap();
    rest.split('"').next().unwrap().parse().unwrap()
}

fn relay(mut from: TcpStream, mut to: TcpStream, is_hung: impl Fn() -> bool) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        // What is swallowed here never arrives, and nobody is told.
        if !is_hung() && to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    if !is_hung() {
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }
}
