//! Kernels at the limits of the table, and one byte over.

use super::{Question, ask_all, header};
use heist_oracle::Ptxas;
use heist_ptx::Version;
use heist_ptx::arch::{Arch, NEWEST_PTX};

#[test]
fn static_shared_memory_ends_where_the_table_says() {
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    let mut questions = Vec::new();
    for &arch in Arch::ALL {
        let limit = arch.static_shared_limit();
        for (bytes, accepted) in [(limit, true), (limit + 1, false)] {
            questions.push(Question {
                what: format!("{bytes} bytes of static shared memory on {arch}"),
                ptx: format!(
                    "{}.visible .entry k() {{\n\
                     .shared .align 16 .b8 s[{bytes}];\n\
                     st.volatile.shared.b8 [s], 1;\nret;\n}}\n",
                    header(NEWEST_PTX, arch)
                ),
                arch,
                accepted,
            });
        }
    }
    // An `a` target shows the opt-in limit of its number; those without one
    // share theirs with a number that has.
    assert_eq!(Arch::SM_90A.static_shared_limit(), 227 * 1024);
    assert_eq!(Arch::SM_120A.static_shared_limit(), 99 * 1024);
    assert_eq!(Arch::SM_90.static_shared_limit(), 48 * 1024);
    ask_all(&ptxas, &questions);
}

#[test]
fn shared_memory_of_two_variables_counts_together() {
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    let questions: Vec<Question> = [(0, true), (1, false)]
        .into_iter()
        .map(|(over, accepted)| Question {
            what: format!("two variables, {over} over"),
            ptx: format!(
                "{}.visible .entry k() {{\n.shared .b8 a[{}];\n.shared .b8 b[8192];\n\
                 st.volatile.shared.b8 [a], 1;\nst.volatile.shared.b8 [b], 1;\nret;\n}}\n",
                header(NEWEST_PTX, Arch::SM_90),
                40 * 1024 + over
            ),
            arch: Arch::SM_90,
            accepted,
        })
        .collect();
    ask_all(&ptxas, &questions);
}

#[test]
fn parameters_end_where_the_table_says() {
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    let mut questions = Vec::new();
    for (arch, version) in [
        (Arch::SM_75, Version::new(6, 3)),
        (Arch::SM_75, NEWEST_PTX),
        (Arch::SM_90, Version::new(8, 0)),
        (Arch::SM_90, Version::new(8, 1)),
        (Arch::SM_100A, NEWEST_PTX),
        (Arch::SM_121, NEWEST_PTX),
    ] {
        let limit = arch.param_limit(version);
        for (bytes, accepted) in [(limit, true), (limit + 1, false)] {
            questions.push(Question {
                what: format!("{bytes} bytes of parameters on {arch} in {version}"),
                ptx: format!(
                    "{}.visible .entry k(.param .align 4 .b8 p[{bytes}]) {{ ret; }}\n",
                    header(version, arch)
                ),
                arch,
                accepted,
            });
        }
    }
    ask_all(&ptxas, &questions);
}

#[test]
fn constants_end_where_the_table_says() {
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    let mut questions = Vec::new();
    for &arch in Arch::ALL {
        let limit = arch.limits().constant_bytes;
        for (bytes, accepted) in [(limit, true), (limit + 1, false)] {
            questions.push(Question {
                what: format!("{bytes} bytes of constants on {arch}"),
                ptx: format!(
                    "{}.const .b8 c[{bytes}];\n.visible .entry k(.param .u64 p) {{\n\
                     .reg .b64 %a; .reg .b16 %v;\nld.param.b64 %a, [p];\n\
                     ld.const.b8 %v, [c+4];\nst.global.b8 [%a], %v;\nret;\n}}\n",
                    header(NEWEST_PTX, arch)
                ),
                arch,
                accepted,
            });
        }
    }
    ask_all(&ptxas, &questions);
}

#[test]
fn registers_and_clusters_are_what_ptxas_says() {
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    for &arch in Arch::ALL {
        // One more than a thread can have is ignored, and ptxas says so.
        let with = |registers: u32| {
            let text = format!(
                "{}.visible .entry k() .maxnreg {registers} {{ ret; }}\n",
                header(NEWEST_PTX, arch)
            );
            ptxas.assemble(&text, arch.name()).expect("a valid kernel")
        };
        let limit = arch.limits().registers_per_thread;
        assert!(with(limit).complaints().is_empty(), "{arch}");
        assert!(!with(limit + 1).complaints().is_empty(), "{arch}");
        // A target has cluster directives exactly when it has clusters.
        let text = format!(
            "{}.visible .entry k() .reqnctapercluster 2, 1, 1 {{ ret; }}\n",
            header(NEWEST_PTX, arch)
        );
        let clusters = arch.limits().cluster_portable > 0;
        assert_eq!(ptxas.accepts(&text, arch.name()), clusters, "{arch}");
        assert!(arch.limits().cluster_max >= arch.limits().cluster_portable);
    }
}
