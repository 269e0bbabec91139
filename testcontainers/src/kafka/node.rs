//! A broker before it runs: its number, its ports and what it advertises.

use super::listeners::Listener;
use crate::Error;
use crate::cut::Cut;
use crate::process::Port;

/// A way into a broker.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) listener: Listener,
    pub(super) port: Port,
    /// The port that clients are told; another than its own when something stands in front.
    pub(super) advertised: u16,
}

/// The ports of one broker. Taken until it is dropped.
#[derive(Debug)]
pub(super) struct Node {
    /// From 1.
    pub(super) id: usize,
    pub(super) openings: Vec<Opening>,
    pub(super) controller: Port,
}

impl Node {
    pub(super) fn reserve(id: usize, listeners: &[Listener]) -> Result<Node, Error> {
        let mut openings = Vec::new();
        for listener in listeners {
            let port = Port::reserve()?;
            let advertised = port.number();
            openings.push(Opening { listener: *listener, port, advertised });
        }
        Ok(Node { id, openings, controller: Port::reserve()? })
    }

    /// Puts a proxy in front of the cut listener, if the node has one: clients are told its address.
    pub(super) fn put_cut_in_front(&mut self) -> Result<Option<Cut>, Error> {
        let Some(opening) = self.openings.iter_mut().find(|opening| opening.listener == Listener::Cut) else {
            return Ok(None);
        };
        let cut = Cut::to(format!("127.0.0.1:{}", opening.port.number()))?;
        opening.advertised = cut.port();
        Ok(Some(cut))
    }

    /// Returns the address that clients are told for a listener, if the broker has it.
    pub(super) fn address(&self, listener: Listener) -> Option<String> {
        let opening = self.openings.iter().find(|opening| opening.listener == listener)?;
        Some(format!("127.0.0.1:{}", opening.advertised))
    }
}
