// Binary numbers, one bit each (1: negative), and residual signs, LEVELS bits each. A product is an
// XNOR, a sum a count. Each level has a scale of its own for a whole row, so that levels meet only
// once those are applied: the result is an exact integer for each pair of levels, (0, 0) lowest,
// then (0, 1), where the second is side b's.

module dot_signs #(
    parameter LANES = 32,
    parameter LEVELS = 1
) (
    input [LANES*LEVELS-1:0] a,
    input [LANES*LEVELS-1:0] b,
    output [LEVELS*LEVELS*($clog2(LANES+1)+1)-1:0] result
);
  localparam SUM = $clog2(LANES + 1) + 1;

  genvar i, j, k;
  generate
    for (i = 0; i < LEVELS; i = i + 1) begin : a_level
      for (j = 0; j < LEVELS; j = j + 1) begin : b_level
        wire [LANES-1:0] positive;
        for (k = 0; k < LANES; k = k + 1) begin : lane
          multiply_signs multiply (
              .a_negative(a[k*LEVELS+i]),
              .b_negative(b[k*LEVELS+j]),
              .positive(positive[k])
          );
        end
        wire [SUM-2:0] count;
        popcount #(.TERMS(LANES)) ones (
            .bits(positive),
            .count(count)
        );
        assign result[(i*LEVELS+j)*SUM+:SUM] = {count, 1'b0} - LANES;  // those less the others
      end
    end
  endgenerate
endmodule

module multiply_signs (
    input a_negative,
    input b_negative,
    output positive
);
  assign positive = ~(a_negative ^ b_negative);
endmodule
