// The results of BLOCKS blocks, each an integer times a power of two, as one FP32 number.
// One block needs no alignment at all, only the conversion: that is the point of a shared scale.

module combine_blocks #(
    parameter BLOCKS = 1,
    parameter WIDTH = 21,
    parameter EXPONENT = 9,
    parameter GUARD = 3,
    parameter OFFSET = 0
) (
    input [BLOCKS*WIDTH-1:0] sums,
    input [BLOCKS*EXPONENT-1:0] exponents,
    input nan,
    output [31:0] fp32
);
  generate
    if (BLOCKS == 1) begin : one
      to_fp32 #(.WIDTH(WIDTH), .EXPONENT(EXPONENT), .OFFSET(OFFSET)) convert (
          .significand(sums),
          .exponent(exponents),
          .nan(nan),
          .fp32(fp32)
      );
    end else begin : many
      localparam TOTAL = WIDTH + GUARD + $clog2(BLOCKS);
      wire [BLOCKS*EXPONENT-1:0] effective;
      wire signed [TOTAL-1:0] sum;
      wire [EXPONENT-1:0] maximum;

      genvar i;
      for (i = 0; i < BLOCKS; i = i + 1) begin : mask
        assign effective[i*EXPONENT+:EXPONENT] =
            |sums[i*WIDTH+:WIDTH] ? exponents[i*EXPONENT+:EXPONENT] : {EXPONENT{1'b0}};
      end

      aligned_sum #(.TERMS(BLOCKS), .WIDTH(WIDTH), .EXPONENT(EXPONENT), .GUARD(GUARD)) add (
          .terms(sums),
          .exponents(effective),
          .sum(sum),
          .maximum(maximum)
      );
      to_fp32 #(.WIDTH(TOTAL), .EXPONENT(EXPONENT), .OFFSET(OFFSET + GUARD)) convert (
          .significand(sum),
          .exponent(maximum),
          .nan(nan),
          .fp32(fp32)
      );
    end
  endgenerate
endmodule

// The exponent that a block's result carries: the sum of its two E8M0 scales, NaN if either is.
module add_scales (
    input [7:0] a,
    input [7:0] b,
    output [8:0] exponent,
    output nan
);
  assign exponent = a + b;
  assign nan = (&a) | (&b);
endmodule

// The same of two biases in two's complement, whose every code is a number: 127 less the bias is an
// exponent as E8M0 has it, and takes no more than inverters.
module add_biases (
    input [7:0] a,
    input [7:0] b,
    output [8:0] exponent
);
  assign exponent = {a[7], ~a[6:0]} + {b[7], ~b[6:0]};
endmodule
