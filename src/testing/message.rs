//! HTTP/1 messages as tests see them: read with as little judgement as possible. Requests are read the way a
//! careless backend would (bare line feeds, `chunked` anywhere in Transfer-Encoding, chunked before
//! Content-Length), so that whatever the gateway lets through shows up as one request too many.

use super::wire::Wire;

/// A request as a backend received it.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub method: String,
    pub target: String,
    pub version: String,
    pub fields: Fields,
    pub body: Vec<u8>,
    pub trailers: Fields,
    /// The body was received whole.
    pub complete: bool,
    /// Which of the backend's connections it came over, from 0.
    pub connection: usize,
    /// The server name of that connection, where it was encrypted.
    pub sni: Option<String>,
}

/// A response as a client received it.
#[derive(Clone, Debug, Default)]
pub struct Response {
    pub status: u16,
    pub fields: Fields,
    pub body: Vec<u8>,
    pub trailers: Fields,
    /// The body ended where its framing said.
    pub complete: bool,
}

/// Header fields in the order they came.
#[derive(Clone, Debug, Default)]
pub struct Fields(pub Vec<(String, String)>);

impl Fields {
    /// The first field with this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    fn parse<'a>(lines: impl Iterator<Item = &'a str>) -> Self {
        let field = |line: &str| {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            (name.to_owned(), value.trim().to_owned())
        };
        Self(lines.map(field).collect())
    }

    fn is_chunked(&self) -> bool {
        self.all("transfer-encoding").any(|value| value.to_ascii_lowercase().contains("chunked"))
    }

    fn length(&self) -> Option<usize> {
        self.all("content-length").find_map(|value| value.parse().ok())
    }
}

impl Request {
    /// The head of the next request; `None` at the end of the connection.
    pub fn read_head(wire: &mut Wire) -> Option<Self> {
        let head = read_head(wire)?;
        let mut lines = head.lines();
        let mut words = lines.next().unwrap_or_default().splitn(3, ' ').map(str::to_owned);
        Some(Self {
            method: words.next().unwrap_or_default(),
            target: words.next().unwrap_or_default(),
            version: words.next().unwrap_or_default(),
            fields: Fields::parse(lines),
            sni: wire.sni(),
            ..Self::default()
        })
    }

    pub fn read_body(&mut self, wire: &mut Wire) {
        if self.fields.is_chunked() {
            (self.body, self.trailers, self.complete) = read_chunked(wire);
        } else {
            let length = self.fields.length().unwrap_or_default();
            self.body = wire.take(length);
            self.complete = self.body.len() == length;
        }
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name)
    }
}

impl Response {
    /// The next response to a request of `method`; `None` at the end of the connection.
    pub fn read(wire: &mut Wire, method: &str) -> Option<Self> {
        let head = read_head(wire)?;
        let mut lines = head.lines();
        let status = lines.next().unwrap_or_default();
        let code = status.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        let status = code.unwrap_or_else(|| panic!("no status line: {status:?}"));
        let mut response = Self { status, fields: Fields::parse(lines), complete: true, ..Self::default() };
        if method == "HEAD" || status < 200 || status == 204 || status == 304 {
            return Some(response);
        }
        if response.fields.is_chunked() {
            (response.body, response.trailers, response.complete) = read_chunked(wire);
        } else if let Some(length) = response.fields.length() {
            response.body = wire.take(length);
            response.complete = response.body.len() == length;
        } else {
            response.body = wire.take_all();
        }
        Some(response)
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Everything up to an empty line.
fn read_head(wire: &mut Wire) -> Option<String> {
    let mut head = String::new();
    loop {
        let line = read_line(wire)?;
        match line.is_empty() {
            true if head.is_empty() => {}
            true => return Some(head),
            false => {
                head.push_str(&line);
                head.push('\n');
            }
        }
    }
}

/// A line without its end, whatever that is; `None` where the connection ends first.
fn read_line(wire: &mut Wire) -> Option<String> {
    loop {
        if let Some(end) = wire.input.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = wire.input.drain(..=end).collect();
            return Some(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned());
        }
        if wire.fill().expect("more, or the end of the connection") == 0 {
            return None;
        }
    }
}

fn read_chunked(wire: &mut Wire) -> (Vec<u8>, Fields, bool) {
    let mut body = Vec::new();
    loop {
        let Some(line) = read_line(wire) else { return (body, Fields::default(), false) };
        let size = line.split(';').next().unwrap_or_default().trim();
        let Ok(size) = usize::from_str_radix(size, 16) else { return (body, Fields::default(), false) };
        if size == 0 {
            break;
        }
        let data = wire.take(size);
        let whole = data.len() == size && read_line(wire).is_some();
        body.extend(data);
        if !whole {
            return (body, Fields::default(), false);
        }
    }
    let mut trailers = Vec::new();
    loop {
        match read_line(wire) {
            Some(line) if line.is_empty() => break,
            Some(line) => trailers.push(line),
            None => return (body, Fields::default(), false),
        }
    }
    (body, Fields::parse(trailers.iter().map(String::as_str)), true)
}
