// MXFP, block minifloat and block log: numbers with exponents under a shared scale. The scale is added
// once a block, but inside the block every lane still has an exponent of its own. BIASES says what
// the shared bits are: 0 an E8M0 scale, 1 a bias in two's complement, which makes values smaller.

module dot_mxfloat #(
    parameter LANES = 32,
    parameter EXPONENT = 4,
    parameter MANTISSA = 3,
    parameter FORM = 0,
    parameter ALIGNED = 1,
    parameter SPECIALS = 1,
    parameter BIASES = 0,
    parameter BLOCK = 32,
    parameter GUARD = 16,
    parameter BLOCK_GUARD = 0,
    parameter OFFSET = 290
) (
    input [LANES*(1+EXPONENT+MANTISSA)-1:0] a,
    input [LANES*(1+EXPONENT+MANTISSA)-1:0] b,
    input [LANES/BLOCK*8-1:0] a_scale,
    input [LANES/BLOCK*8-1:0] b_scale,
    output [31:0] result
);
  localparam BLOCKS = LANES / BLOCK;
  localparam CODE = 1 + EXPONENT + MANTISSA;
  localparam TERM = FORM == 0 ? 2 * MANTISSA + 3 : FORM == 1 ? 2 * MANTISSA + 1 : 2;
  localparam SUM = TERM + GUARD + $clog2(BLOCK);
  wire [BLOCKS*SUM-1:0] sums;
  wire [BLOCKS*10-1:0] exponents;
  wire [2*BLOCKS-1:0] nan;

  genvar i;
  generate
    for (i = 0; i < BLOCKS; i = i + 1) begin : block
      wire [EXPONENT:0] inside;
      wire [8:0] scale;
      float_lanes #(
          .LANES(BLOCK),
          .EXPONENT(EXPONENT),
          .MANTISSA(MANTISSA),
          .FORM(FORM),
          .ALIGNED(ALIGNED),
          .SPECIALS(SPECIALS),
          .GUARD(GUARD)
      ) lanes (
          .a(a[i*BLOCK*CODE+:BLOCK*CODE]),
          .b(b[i*BLOCK*CODE+:BLOCK*CODE]),
          .sum(sums[i*SUM+:SUM]),
          .exponent(inside),
          .nan(nan[2*i])
      );
      if (BIASES) begin : biases
        add_biases add (
            .a(a_scale[i*8+:8]),
            .b(b_scale[i*8+:8]),
            .exponent(scale)
        );
        assign nan[2*i+1] = 1'b0;
      end else begin : scales
        add_scales add (
            .a(a_scale[i*8+:8]),
            .b(b_scale[i*8+:8]),
            .exponent(scale),
            .nan(nan[2*i+1])
        );
      end
      assign exponents[i*10+:10] = inside + scale;
    end
  endgenerate

  combine_blocks #(
      .BLOCKS(BLOCKS),
      .WIDTH(SUM),
      .EXPONENT(10),
      .GUARD(BLOCK_GUARD),
      .OFFSET(OFFSET)
  ) combine (
      .sums(sums),
      .exponents(exponents),
      .nan(|nan),
      .fp32(result)
  );
endmodule
