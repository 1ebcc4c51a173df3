//! Whether the machine is a virtual one.

use crate::doctor::{Finding, Knob, Machine, Takes};

pub(in crate::doctor) static VIRTUALISATION: Knob = Knob {
    name: "hypervisor",
    better: "a bare machine, or a whole host",
    why: "a guest sees neither frequency nor idle states nor heat of its CPUs, and shares them. Its runs can be \
          compared in interleaved pairs, less so over days",
    source: "Luszczek et al., Euro-Par 2011 Workshops; MongoDB, Repeatable Performance Tests",
    takes: Takes::Nothing,
    look,
};

fn look(machine: &Machine) -> Finding {
    match &machine.host.hypervisor {
        None => Finding::ready("none shows itself"),
        Some(name) => Finding::fact(name.clone())
            .hint("what is n/a above is measured instead: `clock` and `steal` here, `emu noise` in full"),
    }
}
