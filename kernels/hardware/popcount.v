// How many of TERMS bits are one: two halves and the bit between them, which is the carry into their
// sum, so that nearly every gate is a full adder's.

module popcount #(
    parameter TERMS = 32
) (
    input [TERMS-1:0] bits,
    output [$clog2(TERMS+1)-1:0] count
);
  localparam LEFT = (TERMS - 1) / 2;
  localparam RIGHT = TERMS - 1 - LEFT;

  generate
    if (TERMS == 1) begin : one
      assign count = bits;
    end else if (TERMS == 2) begin : two
      assign count = {bits[0] & bits[1], bits[0] ^ bits[1]};
    end else begin : many
      wire [$clog2(LEFT+1)-1:0] left;
      wire [$clog2(RIGHT+1)-1:0] right;
      popcount #(.TERMS(LEFT)) left_half (
          .bits(bits[LEFT-1:0]),
          .count(left)
      );
      popcount #(.TERMS(RIGHT)) right_half (
          .bits(bits[TERMS-2:LEFT]),
          .count(right)
      );
      assign count = left + right + bits[TERMS-1];
    end
  endgenerate
endmodule
