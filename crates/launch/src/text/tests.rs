use super::*;
use crate::tensor_map::TensorMap;
use crate::tensor_map::{Swizzle, TensorElement};
use proptest::prelude::*;

fn ok(text: &str) -> Arg {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn error(text: &str) -> ArgTextError {
    text.parse::<Arg>().expect_err(text)
}

#[test]
fn what_is_written_in_a_line_takes_no_more_room_than_it_may() {
    let told = |text: &str| error(text).message;
    assert!(told("out:bf16:2147483648").contains("more than a buffer may have (1 GiB)"));
    assert!(told("in:u8:zeros(1073741825)").contains("1 GiB"));
    assert!(told("in:u8:[0..4194305]").contains("more than a list may have"));
    assert!(told("in:u8:[1, 0*4194304]").contains("more than a list may have"));
    assert_eq!(ok("out:u16:3"), Arg::output::<u16>(3));
}

#[test]
fn every_form() {
    assert_eq!(ok(" u32 : 7 "), Arg::scalar(7u32));
    assert_eq!(ok("f32:-0.0"), Arg::scalar(-0.0f32));
    assert_eq!(
        ok("in:u32:[1, 2,3,0xffffffff]"),
        Arg::input(&[1u32, 2, 3, u32::MAX])
    );
    assert_eq!(ok("in:u32:[]"), Arg::input::<u32>(&[]));
    assert_eq!(ok("inout:f32:[0..4]"), Arg::in_out(&[0f32, 1.0, 2.0, 3.0]));
    assert_eq!(
        ok("in:f32:[1.5*3, 2]"),
        Arg::input(&[1.5f32, 1.5, 1.5, 2.0])
    );
    assert_eq!(ok("in:s8:[-2..2]"), Arg::input(&[-2i8, -1, 0, 1]));
    assert_eq!(ok("out:f64:3"), Arg::output::<f64>(3));
    assert_eq!(ok("in:u16:zeros(2)"), Arg::input(&[0u16, 0]));
    assert_eq!(
        ok("in:f32:rand(3, 8)"),
        Arg::Buffer {
            role: Role::In,
            data: Buffer::random(ElementType::F32, 3, 8)
        }
    );
    assert_eq!(ok("bytes:[1,0*2,0xff]"), Arg::Bytes(vec![1, 0, 0, 255]));
    assert_eq!(
        ok("ptr:work+16"),
        Arg::Pointer {
            buffer: "work".into(),
            offset: 16
        }
    );
    assert_eq!(
        ok("ptr:2"),
        Arg::Pointer {
            buffer: 2.into(),
            offset: 0
        }
    );
}

#[test]
fn elements_may_be_unwritten() {
    let data = Buffer::partly(ElementType::U8, &[Some(1), None, None]);
    let role = Role::InOut;
    assert_eq!(ok("inout:u8:[1, ?*2]"), Arg::Buffer { role, data });
}

#[test]
fn structs_and_functions() {
    let text = "struct( ptr:a , ptr:b+16, u32:7, fn:f$1, bytes:[1,2])";
    let pointer = |buffer: &str, offset| Arg::Pointer {
        buffer: buffer.into(),
        offset,
    };
    let parts = vec![
        pointer("a", 0),
        pointer("b", 16),
        Arg::scalar(7u32),
        Arg::Function("f$1".to_owned()),
        Arg::Bytes(vec![1, 2]),
    ];
    assert_eq!(ok(text), Arg::Struct(parts));
    assert_eq!(ok("fn:_Z1fv"), Arg::Function("_Z1fv".to_owned()));
}

#[test]
fn tensor_maps() {
    let text = "tensormap(buffer=0, type=f16, dims=[64,64], strides=[128], box=[64,8], swizzle=128, interleave=none, l2=none, fill=zeros)";
    let map = TensorMap::dense(0, TensorElement::F16, &[64, 64], &[64, 8]);
    assert_eq!(
        ok(text),
        Arg::TensorMap(map.clone().swizzle(Swizzle::Bytes128))
    );
    let short = "tensormap(buffer=0,type=f16,dims=[64,64],box=[64,8])";
    assert_eq!(ok(short), Arg::TensorMap(map));
}

#[test]
fn mistakes_are_placed_and_explained() {
    for (text, marked, says) in [
        ("7", "7", "type or its role"),
        ("", "", "type or its role"),
        ("f31:1", "f31", "not a type of elements"),
        ("in:f31:[1]", "f31", "not a type of elements"),
        ("in:f32", "", "missing here"),
        ("in:f32:", "", "contents are missing"),
        ("in:f32:[1,x]", "x", "not a value of type f32"),
        ("in:u8:[1, 256]", "256", "0 to 255"),
        ("in:u8:[1,,2]", "", "missing"),
        ("in:u8:[1", "", "`]` is missing"),
        ("in:u8:[1]x", "x", "nothing may follow"),
        ("in:u8:[5..1]", "5..1", "down to"),
        ("in:u8:[0..300]", "0..300", "0 to 255"),
        ("in:f32:[0.5..2]", "0.5", "not a whole number"),
        ("in:u8:[1*x]", "x", "repeats"),
        ("in:u8:[1*99999999999]", "1*99999999999", "more than a list"),
        (
            "in:u64:[0..9999999999999]",
            "0..9999999999999",
            "more than a list",
        ),
        ("out:f32:[1]", "[1]", "no contents"),
        ("out:f32:x", "x", "number of elements"),
        ("out:f32:-1", "-1", "number of elements"),
        (
            "out:f32:9999999999999",
            "9999999999999",
            "more than a buffer",
        ),
        ("in:f32:rand(1)", "rand(1)", "takes 2, not 1"),
        ("in:f32:rand(1,2", "", "`)` is missing"),
        ("in:f32:nowhere.bin", "nowhere.bin", "files can't be read"),
        ("u32:[1]", "[1]", "not a value"),
        ("ptr:1x", "1x", "not the name"),
        ("ptr:a+b", "b", "number of bytes"),
        ("bytes:[256]", "256", "0 to 255"),
        ("bytes:[1,?]", "[1,?]", "nobody has written"),
        ("in:u8:[?..2]", "?", "not a whole number"),
        ("fn:a b", "a b", "not the name of a function"),
        ("struct(u32:7", "", "`)` is missing"),
        ("struct(u32:7, in:u8:[1])", "in:u8:[1]", "part of a struct"),
        (
            "struct(u32:7, struct(u8:1))",
            "struct(u8:1)",
            "part of a struct",
        ),
        ("struct(u32:7, u33:1)", "u33", "not a type"),
        ("tensormap", "tensormap", "parentheses"),
        ("tensormap(buffer)", "buffer", "name=value"),
        ("tensormap(buffr=1)", "buffr", "no field"),
        ("tensormap(l2=none,l2=none)", "l2", "twice"),
        (
            "tensormap(type=f17,dims=[1],box=[1],buffer=0)",
            "f17",
            "there are u8",
        ),
    ] {
        let error = error(text);
        assert_eq!(&text[error.at.clone()], marked, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
    let error = error("tensormap(buffer=0,type=f16,dims=[64,64],box=[64,8],swizzle=64)");
    assert!(error.message.contains("at most 64"), "{error}");
}

#[test]
fn the_message_points() {
    assert_eq!(
        error("in:u8:[1, 256]").to_string(),
        "`256` does not fit u8, which holds 0 to 255 (at column 11)\n  in:u8:[1, 256]\n            ^^^"
    );
    let long = format!(
        "in:u8:[{}, 256, {}]",
        "1,".repeat(100) + "1",
        "2,".repeat(100) + "2"
    );
    let message = error(&long).to_string();
    assert!(message.contains('…'), "{message}");
    assert!(
        message.lines().all(|line| line.chars().count() < 100),
        "{message}"
    );
}

#[test]
fn a_list_where_a_scalar_is_meant_gets_a_remedy() {
    assert_eq!(
        error("u32:[1]").help.as_deref(),
        Some("a list needs a buffer around it: `in:u32:[1]`")
    );
}

#[test]
fn files() {
    let mut files = |path: &str| match path {
        "a.bin" => Ok(vec![1, 0, 0, 0, 2, 0, 0, 0]),
        "b.txt" => Ok(b"1, 2\n3\n".to_vec()),
        "c.txt" => Ok(b"1 x".to_vec()),
        "d.bin" => Ok(vec![0; 5]),
        _ => Err("no such file".to_owned()),
    };
    assert_eq!(
        parse_arg("in:u32:a.bin", &mut files).unwrap(),
        Arg::input(&[1u32, 2])
    );
    assert_eq!(
        parse_arg("in:u32:b.txt", &mut files).unwrap(),
        Arg::input(&[1u32, 2, 3])
    );
    let mut says = |text: &str| parse_arg(text, &mut files).unwrap_err().to_string();
    assert!(says("in:u32:c.txt").contains("value 2"));
    assert!(says("in:u32:d.bin").contains("no whole number of u32"));
    assert!(says("in:u32:e").contains("no such file"));
}

#[test]
fn named_buffers_and_values() {
    let named = parse_named_buffer(" work  out:u8:256", &mut no_files).unwrap();
    assert_eq!(
        (named.name.as_str(), named.role, named.data.len()),
        ("work", Role::Out, 256)
    );
    for (text, says) in [
        ("work", "a blank"),
        ("1x in:u8:[1]", "not the name"),
        ("work u8:1", "needs `in:`"),
        ("", "a blank"),
    ] {
        let error = parse_named_buffer(text, &mut no_files).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
    assert_eq!(
        parse_values("s16:[1,-1]").unwrap(),
        Buffer::from_slice(&[1i16, -1])
    );
    assert!(parse_values("[1]").is_err());
    assert!(parse_values("s16:[1,?]").is_err());
    assert!(parse_values("s16:1").is_err());
}

fn any_type() -> impl Strategy<Value = ElementType> {
    prop::sample::select(ElementType::ALL.to_vec())
}

fn any_buffer() -> impl Strategy<Value = Buffer> {
    // Few different values, so that runs are common, and any bits at all.
    (
        any_type(),
        prop::collection::vec(
            prop_oneof![
                Just(None),
                Just(Some(0)),
                Just(Some(u64::MAX)),
                any::<u64>().prop_map(Some)
            ],
            0..20,
        ),
    )
        .prop_map(|(ty, bits)| Buffer::partly(ty, &bits))
}

fn any_ref() -> impl Strategy<Value = BufferRef> {
    prop_oneof![
        (0usize..9).prop_map(BufferRef::Argument),
        "[a-z_][a-zA-Z0-9_.-]{0,6}".prop_map(BufferRef::Named)
    ]
}

/// What may stand in a struct.
fn any_field() -> impl Strategy<Value = Arg> {
    prop_oneof![
        (any_type(), any::<u64>()).prop_map(|(ty, bits)| Arg::Scalar(Scalar::new(ty, bits))),
        prop::collection::vec(any::<u8>(), 0..9).prop_map(Arg::Bytes),
        (any_ref(), any::<u64>()).prop_map(|(buffer, offset)| Arg::Pointer { buffer, offset }),
        "[a-z_$%][a-zA-Z0-9_$]{0,6}".prop_map(Arg::Function),
    ]
}

fn any_arg() -> impl Strategy<Value = Arg> {
    prop_oneof![
        "[a-z_$%][a-zA-Z0-9_$]{0,6}".prop_map(Arg::Function),
        prop::collection::vec(any_field(), 0..5).prop_map(Arg::Struct),
        (any_type(), any::<u64>()).prop_map(|(ty, bits)| Arg::Scalar(Scalar::new(ty, bits))),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Arg::Bytes),
        (any::<bool>(), any_buffer()).prop_map(|(back, data)| Arg::Buffer {
            role: if back { Role::InOut } else { Role::In },
            data
        }),
        (any_type(), 0usize..100).prop_map(|(ty, count)| Arg::Buffer {
            role: Role::Out,
            data: Buffer::poisoned(ty, count)
        }),
        (any_ref(), any::<u64>()).prop_map(|(buffer, offset)| Arg::Pointer { buffer, offset }),
        (any_ref(), 1u64..6, 1u64..300, 1u32..9, 0u64..4).prop_map(
            |(buffer, width, height, rows, offset)| {
                let mut map = TensorMap::dense(
                    buffer,
                    TensorElement::Bf16,
                    &[width * 8, height],
                    &[8 * width as u32, rows],
                );
                map.offset = offset * 16;
                Arg::TensorMap(map)
            }
        ),
    ]
}

proptest! {
    /// What is printed reads back to the same argument, for all of them.
    #[test]
    fn printing_reads_back(arg in any_arg()) {
        let text = arg.to_string();
        prop_assert_eq!(text.parse::<Arg>(), Ok(arg), "{}", text);
    }

    /// Any text at all gives an argument or a message, and the mark lies in the text.
    #[test]
    fn no_text_panics(text in any::<String>()) {
        if let Err(error) = text.parse::<Arg>() {
            prop_assert!(text.get(error.at.clone()).is_some());
            prop_assert!(!error.to_string().is_empty());
        }
    }

    /// The same for texts that are nearly right.
    #[test]
    fn no_broken_argument_panics(arg in any_arg(), cut in any::<prop::sample::Index>(), put in any::<char>()) {
        let mut text = arg.to_string();
        let at = cut.index(text.len());
        text.replace_range(at..at + 1, &put.to_string());
        if let Err(error) = text.parse::<Arg>() {
            prop_assert!(text.get(error.at.clone()).is_some());
            prop_assert!(!error.to_string().is_empty());
        }
    }
}

#[test]
fn a_stream_without_an_end_is_read_up_to_a_bound() {
    let endless = std::io::repeat(7);
    let why = super::read_at_most(endless, 1000).unwrap_err();
    assert!(why.contains("more than 1000 bytes"), "{why}");
    assert_eq!(
        super::read_at_most(&[7u8; 1000][..], 1000),
        Ok(vec![7; 1000])
    );
    assert!(super::read_file("no/such/file").is_err());
}

#[cfg(unix)]
#[test]
fn a_pipe_is_read_to_its_end() {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"12 34").unwrap();
    drop(writer);
    let path = format!("/dev/fd/{}", reader.as_raw_fd());
    assert_eq!(super::read_file(&path), Ok(b"12 34".to_vec()));
}
