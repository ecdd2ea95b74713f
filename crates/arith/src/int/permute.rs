//! Moving bytes and bits between registers: `prmt` and the funnel shifts.

/// The modes of `prmt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PrmtMode {
    /// No suffix: four selectors of four bits.
    Default,
    /// `.f4e`: forward 4 extract.
    F4e,
    /// `.b4e`: backward 4 extract.
    B4e,
    /// `.rc8`: replicate 8.
    Rc8,
    /// `.ecl`: edge clamp left.
    Ecl,
    /// `.ecr`: edge clamp right.
    Ecr,
    /// `.rc16`: replicate 16.
    Rc16,
}

/// The selector of the default mode that the other modes' `control` stands for.
#[inline]
pub fn prmt_selector(mode: PrmtMode, control: u32) -> u32 {
    let n = (control & 3) as usize;
    match mode {
        PrmtMode::Default => control,
        PrmtMode::F4e => [0x3210, 0x4321, 0x5432, 0x6543][n],
        PrmtMode::B4e => [0x5670, 0x6701, 0x7012, 0x0123][n],
        PrmtMode::Rc8 => [0x0000, 0x1111, 0x2222, 0x3333][n],
        PrmtMode::Ecl => [0x3210, 0x3211, 0x3222, 0x3333][n],
        PrmtMode::Ecr => [0x0000, 0x1110, 0x2210, 0x3210][n],
        PrmtMode::Rc16 => [0x1010, 0x3232, 0x1010, 0x3232][n],
    }
}

/// `prmt.b32` without a mode: byte `i` of the result is the byte of `b:a` that
/// nibble `i` of `selector` names, or, if the nibble's top bit is set, that
/// byte's sign eight times.
#[inline(always)]
pub fn prmt(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = (b as u64) << 32 | a as u64;
    let mut result = 0;
    for i in 0..4 {
        let nibble = selector >> (4 * i);
        let byte = (bytes >> (8 * (nibble & 7))) as u8;
        let sign = ((byte as i8) >> 7) as u8;
        let byte = if nibble & 8 == 0 { byte } else { sign };
        result |= (byte as u32) << (8 * i);
    }
    result
}

/// `shf.l.wrap` (`CLAMP` false) and `shf.l.clamp`: the upper word of `high:low`
/// shifted left.
#[inline(always)]
pub fn shf_l<const CLAMP: bool>(low: u32, high: u32, n: u32) -> u32 {
    let n = if CLAMP { n.min(32) } else { n & 31 };
    ((((high as u64) << 32 | low as u64) << n) >> 32) as u32
}

/// `shf.r.wrap` and `shf.r.clamp`: the lower word of `high:low` shifted right.
#[inline(always)]
pub fn shf_r<const CLAMP: bool>(low: u32, high: u32, n: u32) -> u32 {
    let n = if CLAMP { n.min(32) } else { n & 31 };
    (((high as u64) << 32 | low as u64) >> n) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_mode_picks_bytes_and_signs() {
        let (a, b) = (0x8372_6150, 0xf7e6_d5c4);
        assert_eq!(prmt(a, b, 0x3210), a);
        assert_eq!(prmt(a, b, 0x7654), b);
        assert_eq!(prmt(a, b, 0x0123), 0x5061_7283);
        assert_eq!(prmt(a, b, 0xb8fc), 0xff00_ffff);
        assert_eq!(prmt(a, b, 0xdead_3210), a);
    }

    #[test]
    fn the_modes_are_the_table_of_the_isa() {
        let (a, b) = (0x0302_0100, 0x0706_0504);
        let run = |mode, control| prmt(a, b, prmt_selector(mode, control));
        assert_eq!(run(PrmtMode::F4e, 1), 0x0403_0201);
        assert_eq!(run(PrmtMode::F4e, 7), 0x0605_0403);
        assert_eq!(run(PrmtMode::B4e, 0), 0x0506_0700);
        assert_eq!(run(PrmtMode::B4e, 3), 0x0001_0203);
        assert_eq!(run(PrmtMode::Rc8, 2), 0x0202_0202);
        assert_eq!(run(PrmtMode::Ecl, 1), 0x0302_0101);
        assert_eq!(run(PrmtMode::Ecl, 2), 0x0302_0202);
        assert_eq!(run(PrmtMode::Ecr, 1), 0x0101_0100);
        assert_eq!(run(PrmtMode::Ecr, 2), 0x0202_0100);
        assert_eq!(run(PrmtMode::Rc16, 1), 0x0302_0302);
        assert_eq!(run(PrmtMode::Rc16, 2), 0x0100_0100);
        assert_eq!(run(PrmtMode::Default, 0x7654), b);
    }

    #[test]
    fn funnel_shifts() {
        let (low, high) = (0x89ab_cdef, 0x0123_4567);
        assert_eq!(shf_l::<true>(low, high, 0), high);
        assert_eq!(shf_l::<true>(low, high, 4), 0x1234_5678);
        assert_eq!(shf_l::<true>(low, high, 32), low);
        assert_eq!(shf_l::<true>(low, high, 99), low);
        assert_eq!(shf_l::<false>(low, high, 36), 0x1234_5678);
        assert_eq!(shf_r::<true>(low, high, 0), low);
        assert_eq!(shf_r::<true>(low, high, 4), 0x789a_bcde);
        assert_eq!(shf_r::<true>(low, high, 32), high);
        assert_eq!(shf_r::<true>(low, high, 99), high);
        assert_eq!(shf_r::<false>(low, high, 36), 0x789a_bcde);
        assert_eq!(shf_r::<false>(low, high, 32), low);
    }
}
