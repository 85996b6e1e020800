//! Frames between portal and helper: a length (32 bits, big-endian), then that many bytes of
//! JSON. A length above [`MAX_MESSAGE`] is told from the rest, so that nobody allocates for it.

use std::{
    io::{self, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use rustix::{
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
        recvmsg, sendmsg,
    },
};
use serde::Serialize;

use lyceum_wire::protocol::MAX_MESSAGE;

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    Message(Vec<u8>),
    /// The other side closed between two frames.
    End,
    /// The length that was announced; nothing more was read.
    TooLong(usize),
}

/// Reads one frame. A stream that ends inside one is an `UnexpectedEof`.
pub fn read(from: &mut impl Read) -> io::Result<Frame> {
    let mut length = [0; 4];
    if read_first(from, &mut length)? == 0 {
        return Ok(Frame::End);
    }
    let length = u32::from_be_bytes(length) as usize;
    if length > MAX_MESSAGE {
        return Ok(Frame::TooLong(length));
    }
    let mut message = vec![0; length];
    from.read_exact(&mut message)?;
    Ok(Frame::Message(message))
}

/// Writes one frame in one piece; refuses what the other side would not read.
pub fn write(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    to.write_all(&framed(message)?)
}

/// The same, with a descriptor that arrives with its first byte.
pub fn write_with(mut to: &UnixStream, message: &impl Serialize, descriptor: Option<&OwnedFd>) -> io::Result<()> {
    let Some(descriptor) = descriptor else { return write(&mut to, message) };
    let frame = framed(message)?;
    let descriptors = [descriptor.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let sent = loop {
        match sendmsg(to, &[io::IoSlice::new(&frame)], &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            sent => break sent?,
        }
    };
    to.write_all(&frame[sent..])
}

/// Reads a socket and keeps the descriptor that comes with what it reads.
#[derive(Debug)]
pub struct Receiver<'a> {
    pub socket: &'a UnixStream,
    pub descriptor: Option<OwnedFd>,
}

impl Read for Receiver<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(self.socket, &mut [io::IoSliceMut::new(buffer)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptor = descriptors.last().or(self.descriptor.take());
            }
        }
        Ok(received.bytes)
    }
}

fn framed(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, message)?;
    let length = frame.len() - 4;
    if length > MAX_MESSAGE {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("a message of {length} bytes is too long")));
    }
    let length = u32::try_from(length).expect("bounded by MAX_MESSAGE");
    frame[..4].copy_from_slice(&length.to_be_bytes());
    Ok(frame)
}

/// Fills `buffer`, unless the stream ends before its first byte: then 0.
fn read_first(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let got = loop {
        match from.read(buffer) {
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            other => break other?,
        }
    };
    if got > 0 {
        from.read_exact(&mut buffer[got..])?;
    }
    Ok(got)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic_or_waste(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let mut rest = bytes.as_slice();
            while let Ok(Frame::Message(message)) = read(&mut rest) {
                prop_assert!(message.len() <= bytes.len());
                let _ = serde_json::from_slice::<lyceum_wire::protocol::HelperRequest>(&message);
            }
        }

        #[test]
        fn what_is_written_is_read(text in ".{0,300}") {
            let mut wire = Vec::new();
            write(&mut wire, &text).unwrap();
            let mut wire = wire.as_slice();
            let Frame::Message(message) = read(&mut wire).unwrap() else { panic!("no message") };
            prop_assert_eq!(serde_json::from_slice::<String>(&message).unwrap(), text);
            prop_assert_eq!(read(&mut wire).unwrap(), Frame::End);
        }
    }

    #[test]
    fn a_descriptor_travels_with_a_frame() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut told, sent) = UnixStream::pair().unwrap();
        let long = "x".repeat(100_000);
        std::thread::scope(|scope| {
            scope.spawn(|| write_with(&theirs, &long, Some(&sent.into())).unwrap());
            let mut receiver = Receiver { socket: &ours, descriptor: None };
            let Frame::Message(message) = read(&mut receiver).unwrap() else { panic!("no message") };
            assert_eq!(serde_json::from_slice::<String>(&message).unwrap(), long);
            let mut end = UnixStream::from(receiver.descriptor.unwrap());
            end.write_all(b"hello").unwrap();
        });
        let mut heard = String::new();
        told.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "hello", "and nobody else holds that end");
    }

    #[test]
    fn bounds() {
        assert_eq!(read(&mut [0xff; 9].as_slice()).unwrap(), Frame::TooLong(0xffff_ffff));
        assert_eq!(read(&mut [0, 0].as_slice()).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(read(&mut [0, 0, 0, 9, b'{'].as_slice()).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let long = "x".repeat(MAX_MESSAGE);
        assert!(write(&mut Vec::new(), &long).is_err(), "two quotes too many");
        assert!(write(&mut Vec::new(), &&long[2..]).is_ok());
    }
}
