//! Every spelling of `tcgen05` that ptxas takes for sm_100a is taken here, too, but for those of
//! three forms, which are refused by name.

use heist_ptx::rule;
use heist_sim::{Device, Program};

/// A part of the names of kernels that are refused, and of why.
const REFUSED: [(&str, &str); 3] = [
    ("exclusive", "an exclusive allocation"),
    ("ashift", "`.ashift`"),
    ("zero_columns", "a mask of zero columns"),
];

#[test]
fn what_ptxas_takes_is_taken_or_refused_by_name() {
    let text = include_str!("spellings/tcgen05.ptx");
    let source = heist_ptx::Source::new("tcgen05.ptx", text);
    let module = heist_ptx::parse(&source).expect("PTX");
    let names: Vec<String> = module
        .entries()
        .map(|entry| entry.name.to_string())
        .collect();
    assert_eq!(names.len(), 81);
    let program = Program::new(module).expect("a program");
    let device = Device::named("sim:b200").expect("a device");
    for name in names {
        let told = program.needs(&device, &name, 32, 0).err();
        let why = REFUSED.iter().find(|(part, _)| name.contains(part));
        match (told, why) {
            (None, None) => {}
            (Some(told), Some((_, why))) => {
                assert!(!told.is_empty(), "{name}");
                for one in told {
                    assert_eq!(one.code, rule::UNSUPPORTED, "{name}: {one:?}");
                    assert!(format!("{one:?}").contains(why), "{name}: {one:?}");
                }
            }
            (told, _) => panic!("{name}: {told:?}"),
        }
    }
}
