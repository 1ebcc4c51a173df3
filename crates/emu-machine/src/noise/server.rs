//! A TCP server that sends back what it gets, through which work goes step by step.

use std::io::{Error as IoError, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::Duration;

use emu_bench::wrong;
use emu_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// No message takes longer there and back.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// What helps where a server does not answer.
pub(super) const HINT: &str =
    "have a server there that sends back what it gets, such as `ncat -lk -e /bin/cat 7007`";

/// Where the server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Server {
    /// In this process, reached over loopback.
    Loopback,
    /// At this address, on whatever machine.
    At(SocketAddr),
}

impl Server {
    /// Finds the server: `loopback`, or `HOST:PORT`, which is asked once.
    ///
    /// # Errors
    /// Usage, for a text without a port. Unavailable, where there is no such host, or nothing there that sends back.
    pub fn find(text: &str) -> Result<Self> {
        if text == "loopback" {
            return Ok(Self::Loopback);
        }
        let has_port = text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if !has_port {
            return Err(Error::usage(format!("bad server `{text}`"))
                .hint("write it as loopback, 192.0.2.1:7 or name:7"));
        }
        let unknown = |cause| unavailable(&format!("there is no host of server {text}"), cause).hint(HINT);
        let mut outcome = Err(Error::unavailable(format!("server {text} has no address")));
        for address in text.to_socket_addrs().map_err(unknown)? {
            outcome =
                Connection::to(address).and_then(|server| server.round_trip(1)).map(|_| Self::At(address));
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    /// Its address. The one of this process is started, and serves as long as the process lives.
    pub(super) fn start(self) -> Result<SocketAddr> {
        match self {
            Self::At(address) => Ok(address),
            Self::Loopback => serve().map_err(|cause| unavailable("cannot serve over loopback", cause)),
        }
    }
}

fn unavailable(what: &str, cause: IoError) -> Error {
    Error::io(what, cause).with_kind(ErrorKind::Unavailable)
}

fn serve() -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    thread::Builder::new().name("emu-server".into()).spawn(move || {
        // One client at a time, as runs take turns.
        for mut client in listener.incoming().flatten() {
            let mut buffer = [0; 8];
            // The end of a client is an error here, and nobody's concern.
            let _ = client.set_nodelay(true);
            while client.read_exact(&mut buffer).and_then(|()| client.write_all(&buffer)).is_ok() {}
        }
    })?;
    Ok(address)
}

/// A connection to the server.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    server: SocketAddr,
}

impl Connection {
    pub(super) fn to(server: SocketAddr) -> Result<Self> {
        let connect = || {
            let stream = TcpStream::connect_timeout(&server, PATIENCE)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Ok(stream)
        };
        let stream = connect()
            .map_err(|cause| unavailable(&format!("cannot connect to server {server}"), cause).hint(HINT))?;
        Ok(Self { stream, server })
    }

    /// Sends a number and returns what comes back, which must be the same.
    pub(super) fn round_trip(&self, number: u64) -> Result<u64> {
        let (mut stream, mut buffer) = (&self.stream, [0; 8]);
        let sent = stream.write_all(&number.to_ne_bytes());
        sent.and_then(|()| stream.read_exact(&mut buffer)).map_err(|cause| {
            let what = format!("server {} has not sent back what it got within {PATIENCE:?}", self.server);
            unavailable(&what, cause).hint(HINT)
        })?;
        if u64::from_ne_bytes(buffer) == number {
            return Ok(number);
        }
        Err(wrong(format_args!("reply of server {}: it came back changed", self.server)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers so often by what it got and this, and then closes the connection.
    fn server(answers: usize, more: u64) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            for _ in 0..answers {
                let mut buffer = [0; 8];
                client.read_exact(&mut buffer).unwrap();
                client.write_all(&(u64::from_ne_bytes(buffer) + more).to_ne_bytes()).unwrap();
            }
        });
        address
    }

    #[test]
    fn what_is_sent_comes_back_from_client_after_client() {
        let address = Server::Loopback.start().unwrap();
        for _ in 0..2 {
            let connection = Connection::to(address).unwrap();
            assert_eq!([1, 2, 3].map(|number| connection.round_trip(number).unwrap()), [1, 2, 3]);
        }
        assert_eq!(Server::find(&address.to_string()).unwrap(), Server::At(address));
    }

    #[test]
    fn a_server_that_dies_or_is_not_there_is_named() {
        let address = server(2, 0);
        let connection = Connection::to(address).unwrap();
        assert!(connection.round_trip(1).is_ok() && connection.round_trip(2).is_ok());
        let died = connection.round_trip(3).unwrap_err();
        assert_eq!(died.kind(), ErrorKind::Unavailable);
        assert!(died.to_string().contains(&address.to_string()), "{died}");
        // Nobody listens there any more.
        for text in [address.to_string(), "no-such-host.invalid:7".into()] {
            let error = Server::find(&text).unwrap_err();
            assert!(error.kind() == ErrorKind::Unavailable && error.to_string().contains(&text), "{error}");
        }
        assert_eq!(Server::find(&server(1, 1).to_string()).unwrap_err().kind(), ErrorKind::WrongResult);
        for bad in ["", "7", "host", "host:", "host:x", "::1:70000"] {
            assert_eq!(Server::find(bad).unwrap_err().kind(), ErrorKind::Usage, "{bad}");
        }
    }
}
