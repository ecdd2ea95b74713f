// The host's struct has the types of the declaration.
use heist_builder::*;

kernel_params! { pub struct Args { data: Global<f32>, n: u32 } }

fn main() {
    let _: Args = Args { data: DevicePtr::new(0), n: 1.5 };
}
