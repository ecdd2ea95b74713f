"""PTX that several tests run."""

ADD = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 data, .param .u32 count, .param .f32 more) {
    .reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .f32 %f<3>; .reg .pred %p<2>;
    ld.param.u64 %rd1, [data];
    ld.param.u32 %r1, [count];
    ld.param.f32 %f1, [more];
    mov.u32 %r2, %tid.x;
    setp.ge.u32 %p1, %r2, %r1;
    @%p1 bra DONE;
    mul.wide.u32 %rd2, %r2, 4;
    add.u64 %rd3, %rd1, %rd2;
    ld.global.f32 %f2, [%rd3];
    add.f32 %f2, %f2, %f1;
    st.global.f32 [%rd3], %f2;
DONE:
    ret;
}
"""
