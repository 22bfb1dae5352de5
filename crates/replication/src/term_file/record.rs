//! The record in the file of terms. `docs/format/term.md` is its grammar.

use crate::error::TermError;
use crate::identity::{Cluster, ClusterId, Life, MEMBERS_MAX, STARTS_KEPT};
use fulgurite_types::{DatabaseId, DecodeError, Reader, Writer, crc32c};

const MAGIC: u64 = u64::from_le_bytes(*b"FulgTerm");
const VERSION: u16 = 3;
/// Of it the members before, and moves, are not known.
const FORMER_VERSION: u16 = 2;
/// A copy has a block of its own, so that a torn write damages one.
pub(super) const COPY_BYTES: usize = 4096;
/// What comes before the nonces and the members, and what each member takes.
const HEAD_BYTES: usize = 112;
const MEMBERS_AT: usize = HEAD_BYTES + STARTS_KEPT * 8;
const MEMBER_BYTES: usize = 32;
/// The checksum of all before it.
const CHECKED_BYTES: usize = COPY_BYTES - 4;
/// Where the members before are, and the numbers of moves.
const PREVIOUS_AT: usize = MEMBERS_AT + MEMBERS_MAX * MEMBER_BYTES;
const MOVES_AT: usize = PREVIOUS_AT + 4 + MEMBERS_MAX * 4;
/// Where the member is that is none any more.
const REMOVED_AT: usize = MOVES_AT + 24;
const _: () = assert!(REMOVED_AT + MEMBER_BYTES < CHECKED_BYTES);

/// A copy in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// How often the file was written.
    pub writes: u64,
    pub database: DatabaseId,
    pub cluster: ClusterId,
    pub version: u64,
    /// The newest version of the members with which an entry was agreed, as this node has heard: this version, or the one before.
    pub in_force: Option<u64>,
    pub node: u32,
    /// The node that it voted for in `term`; nodes are numbered from 1.
    pub vote: Option<u32>,
    pub term: u64,
    /// That of the directory.
    pub directory: u64,
    /// How often the node was started.
    pub starts: u64,
    /// The node that knows of another life of this one; 0 if none does. That life is the one of this node among the members.
    pub condemned_by: u32,
    /// Of the last starts, the last one last; [`STARTS_KEPT`] at most.
    pub nonces: Vec<u64>,
    /// In rising order, each with the newest life of it that is known.
    pub members: Vec<(u32, Option<Life>)>,
    /// The members before, in rising order; none in the first version.
    pub previous: Vec<u32>,
    /// The newest known life of the one that is no member any more: another operator's set of this version may have it, and then counts it.
    pub removed: Option<Life>,
    /// The number of the move of this file to another directory; 0: it is to stay.
    pub moved: u64,
    /// That of the move which brought it here; 0: none did.
    pub came: u64,
    /// Whether a leader was appointed with the members, as this node has heard.
    pub is_settled: bool,
}

impl Record {
    pub fn encode(&self) -> Vec<u8> {
        let mut block = Vec::with_capacity(COPY_BYTES);
        block.put_u64(MAGIC);
        block.put_u16(VERSION);
        block.put_u16(self.members.len() as u16);
        block.put_u32(self.node);
        block.put_u64(self.writes);
        block.put_u128(self.database.0);
        block.put_u128(self.cluster.0);
        block.put_u64(self.term);
        block.put_u32(self.vote.unwrap_or(0));
        block.put_u32(self.nonces.len() as u32);
        block.put_u64(self.directory);
        block.put_u64(self.starts);
        block.put_u64(self.version);
        block.put_u64(self.in_force.map_or(0, |version| version.saturating_add(1)));
        block.put_u64(self.condemned_by.into());
        self.nonces.iter().for_each(|nonce| block.put_u64(*nonce));
        block.resize(MEMBERS_AT, 0);
        self.members.iter().for_each(|(number, life)| encode_member(&mut block, *number, *life));
        block.resize(PREVIOUS_AT, 0);
        block.put_u32(self.previous.len() as u32);
        self.previous.iter().for_each(|number| block.put_u32(*number));
        block.resize(MOVES_AT, 0);
        block.put_u64(self.moved);
        block.put_u64(self.came);
        block.put_u64(self.is_settled.into());
        encode_member(&mut block, self.removed.map_or(0, |life| life.node), self.removed);
        block.resize(CHECKED_BYTES, 0);
        block.put_u32(crc32c(&block));
        block
    }

    pub fn new(
        database: DatabaseId,
        cluster: &Cluster,
        node: u32,
        directory: u64,
        term: u64,
    ) -> Result<Record, TermError> {
        let Cluster { id, version, members, previous } = cluster.checked_with(node)?;
        Ok(Record {
            writes: 1,
            database,
            cluster: id,
            version,
            in_force: None,
            node,
            vote: None,
            term,
            directory,
            starts: 0,
            condemned_by: 0,
            nonces: Vec::new(),
            members: members.into_iter().map(|member| (member, None)).collect(),
            previous,
            removed: None,
            moved: 0,
            came: 0,
            is_settled: false,
        })
    }

    /// The newest lives of others that the node knows.
    pub fn lives(&self) -> Vec<Life> {
        self.all_lives().filter(|life| life.node != self.node).collect()
    }

    /// With that of this node if another one knows of it.
    pub fn all_lives(&self) -> impl Iterator<Item = Life> {
        self.members.iter().map(|(_, life)| *life).chain([self.removed]).flatten()
    }

    pub fn remember(&mut self, lives: &[Life]) {
        for (number, known) in &mut self.members {
            if let Some(life) = lives.iter().find(|life| life.node == *number) {
                *known = Some(*life);
            }
        }
        if let Some(life) = lives.iter().find(|life| self.was_removed(life.node)) {
            self.removed = Some(*life);
        }
    }

    /// Whether a node was a member before, and is none any more.
    pub fn was_removed(&self, node: u32) -> bool {
        self.previous.contains(&node) && self.members.iter().all(|(number, _)| *number != node)
    }

    /// The newest life of a node that is known.
    pub fn known(&self, node: u32) -> Option<Life> {
        self.all_lives().find(|life| life.node == node)
    }

    /// With other members. The life of the one that was a member before and is none any more stays, too; there is one at most. No other node can become
    /// a member of this version.
    pub fn with_members(&self, cluster: Cluster) -> Record {
        let Cluster { version, members, previous, .. } = cluster;
        let removed =
            previous.iter().filter(|node| !members.contains(node)).find_map(|node| self.known(*node));
        let members = members.into_iter().map(|member| (member, self.known(member))).collect();
        Record { version, members, previous, removed, ..self.clone() }
    }

    pub fn cluster(&self) -> Cluster {
        let members = self.members.iter().map(|(number, _)| *number).collect();
        Cluster { id: self.cluster, version: self.version, members, previous: self.previous.clone() }
    }

    pub fn decode(block: &[u8]) -> Result<Record, DecodeError> {
        let wrong = |field, offset| Err(DecodeError { field, offset });
        let mut reader = Reader::new(block);
        if reader.u64("magic")? != MAGIC {
            return wrong("magic", 0);
        }
        let format = reader.u16("format version")?;
        if ![FORMER_VERSION, VERSION].contains(&format) {
            return wrong("format version", 8);
        }
        let sum = Reader::new(block.get(CHECKED_BYTES..).unwrap_or_default()).u32("checksum")?;
        if sum != crc32c(&block[..CHECKED_BYTES]) {
            return wrong("checksum", CHECKED_BYTES);
        }
        let count = reader.u16("number of members")?;
        if usize::from(count) > MEMBERS_MAX {
            return wrong("number of members", 10);
        }
        let nonces;
        let mut record = Record {
            node: reader.u32("node")?,
            writes: reader.u64("writes")?,
            database: DatabaseId(reader.u128("database id")?),
            cluster: ClusterId(reader.u128("cluster id")?),
            term: reader.u64("term")?,
            vote: Some(reader.u32("vote")?).filter(|vote| *vote != 0),
            directory: {
                nonces = reader.u32("number of nonces")?;
                reader.u64("directory")?
            },
            starts: reader.u64("starts")?,
            version: reader.u64("version of the members")?,
            in_force: reader.u64("version in force")?.checked_sub(1),
            condemned_by: reader.u64("node that knows of another life")? as u32,
            nonces: Vec::new(),
            members: Vec::with_capacity(count.into()),
            previous: Vec::new(),
            removed: None,
            moved: 0,
            came: 0,
            is_settled: false,
        };
        if nonces as usize > STARTS_KEPT {
            return wrong("number of nonces", 68);
        }
        for _ in 0..nonces {
            record.nonces.push(reader.u64("nonce")?);
        }
        reader.bytes(MEMBERS_AT - reader.position(), "reserved")?;
        for _ in 0..count {
            record.members.push(decode_member(&mut reader)?);
        }
        record.decode_members_before(format, &mut reader)?;
        if !record.members.is_sorted_by(|a, b| a.0 < b.0) || (record.starts > 0 && record.nonces.is_empty()) {
            return wrong("members or nonces", MEMBERS_AT);
        }
        Ok(record)
    }

    /// What follows the members.
    fn decode_members_before(&mut self, format: u16, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        if format == FORMER_VERSION {
            // It said whether they are.
            self.in_force = self.in_force.map(|_| self.version);
        } else {
            reader.bytes(PREVIOUS_AT - reader.position(), "reserved")?;
            let previous = reader.u32("number of members before")? as usize;
            if previous > MEMBERS_MAX {
                return Err(DecodeError { field: "number of members before", offset: PREVIOUS_AT });
            }
            for _ in 0..previous {
                self.previous.push(reader.u32("member before")?);
            }
            reader.bytes(MOVES_AT - reader.position(), "reserved")?;
            (self.moved, self.came) = (reader.u64("move from here")?, reader.u64("move to here")?);
            self.is_settled = reader.u64("whether they are settled")? != 0;
            (_, self.removed) = decode_member(reader)?;
        }
        Ok(())
    }
}

fn encode_member(block: &mut Vec<u8>, number: u32, life: Option<Life>) {
    let Life { directory, start, nonce, .. } =
        life.unwrap_or(Life { node: number, directory: 0, start: 0, nonce: 0 });
    block.put_u32(number);
    block.put_u32(0);
    block.put_u64(directory);
    block.put_u64(start);
    block.put_u64(nonce);
}

fn decode_member(reader: &mut Reader<'_>) -> Result<(u32, Option<Life>), DecodeError> {
    let node = reader.u32("member")?;
    reader.u32("reserved")?;
    let (directory, start) = (reader.u64("directory of a member")?, reader.u64("start of a member")?);
    let life = Life { node, directory, start, nonce: reader.u64("nonce of a member")? };
    Ok((node, Some(life).filter(|life| life.start > 0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: DatabaseId = DatabaseId(0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100);

    #[test]
    fn golden_record() {
        let life = Life { node: 2, directory: 0x41, start: 0x42, nonce: 0x43 };
        let record = Record {
            writes: 0x51,
            database: ID,
            cluster: ClusterId(0xc1),
            version: 0x81,
            in_force: Some(0x81),
            node: 3,
            vote: Some(2),
            term: 0x1122,
            directory: 0x61,
            starts: 9,
            condemned_by: 0x91,
            nonces: vec![0x71, 0x72],
            members: vec![(2, Some(life)), (3, None)],
            previous: vec![2, 3, 4],
            removed: Some(Life { node: 4, directory: 0x44, start: 0x45, nonce: 0x46 }),
            moved: 0xa1,
            came: 0xb1,
            is_settled: true,
        };
        let block = record.encode();
        let checked = [
            &block[..HEAD_BYTES + 24],
            &block[MEMBERS_AT..MEMBERS_AT + 2 * MEMBER_BYTES],
            &block[PREVIOUS_AT..PREVIOUS_AT + 16],
            &block[MOVES_AT..REMOVED_AT + MEMBER_BYTES],
        ]
        .concat();
        let hex: String = checked.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            hex,
            "46756c675465726d03000200030000005100000000000000\
             000102030405060708090a0b0c0d0e0f\
             c1000000000000000000000000000000\
             22110000000000000200000002000000\
             61000000000000000900000000000000\
             81000000000000008200000000000000\
             9100000000000000\
             710000000000000072000000000000000000000000000000\
             02000000000000004100000000000000\
             42000000000000004300000000000000\
             03000000000000000000000000000000\
             00000000000000000000000000000000\
             03000000020000000300000004000000\
             a100000000000000b1000000000000000100000000000000\
             04000000000000004400000000000000\
             45000000000000004600000000000000"
        );
        assert_eq!((block.len(), Record::decode(&block)), (COPY_BYTES, Ok(record)));
        for at in 0..COPY_BYTES {
            let mut other = block.clone();
            other[at] ^= 1;
            assert!(Record::decode(&other).is_err(), "byte {at} is checked");
        }
    }

    /// The version before said whether the members are in force, and had no others.
    #[test]
    fn a_record_of_the_version_before_is_read() {
        let cluster = Cluster::new(ClusterId(0xc1), [1, 2, 3]);
        let record = Record { version: 4, ..Record::new(ID, &cluster, 3, 70, 5).unwrap() };
        for (is_in_force, in_force) in [(0, None), (1, Some(4))] {
            let mut block = record.encode();
            (block[8], block[96]) = (2, is_in_force);
            let sum = crc32c(&block[..CHECKED_BYTES]);
            block[CHECKED_BYTES..].copy_from_slice(&sum.to_le_bytes());
            assert_eq!(Record::decode(&block), Ok(Record { in_force, ..record.clone() }));
        }
    }
}
