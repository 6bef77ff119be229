-- Sets the flag rule: gives it a version and the time, audits it, tells the replicas.
--
-- The version is the time in ms, or the newest known version plus one if that is greater. So a change is newer than any
-- change before it, also if neither the store nor the asking replica knows that change any more.
--
-- KEYS[1] rule     flags:virtual-queue.enabled
-- KEYS[2] audit    flags:audit (stream)
-- ARGV[1] change   JSON object, not empty, without version and time
-- ARGV[2] who      operator
-- ARGV[3] why      reason
-- ARGV[4] known    version the asking replica knows, 0: none
-- ARGV[5] kept     audit entries kept, exactly
-- ARGV[6] longest  bytes of a rule the audit keeps in full
-- ARGV[7] channel  flags:changed
--
-- Reply: the rule now stored, JSON; then the error if the audit failed, or ''.
--
-- Example: at 1790000000123 ms.
--   EVALSHA … 2 flags:virtual-queue.enabled flags:audit '{"enabled":false,…,"reason":"stop"}' kim stop
--     1790000000000 10000 16384 flags:changed
--   → '{"version":1790000000123,"updatedAtMs":1790000000123,"enabled":false,…,"reason":"stop"}' ''
--
-- The JSON is built as text: cjson would turn [] into {} and long numbers into floats.
assert(#KEYS == 2 and #ARGV == 7, 'flag_put takes 2 KEYS and 7 ARGV')
local rule_key, audit_key = KEYS[1], KEYS[2]
local change, who, why, known = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local kept, longest, channel = ARGV[5], tonumber(ARGV[6]), ARGV[7]

-- pcall: setting the flag must also work over a key of another type, which someone wrote by hand.
local old = redis.pcall('GET', rule_key)
if type(old) ~= 'string' then
  old = ''
end

local now = flag_now()
local version = math.max((flag_version(old) or 0) + 1, known + 1, tonumber(now))
local new = string.format('{"version":%.0f,"updatedAtMs":%s,', version, now) .. string.sub(change, 2)

-- The rule first: if it cannot be stored, nothing is audited.
redis.call('SET', rule_key, new)
local lost = flag_audit(audit_key, kept, longest, now, who, old, new, why)
-- pcall: our user may lack the right to the channel. It is only a hint; replicas poll.
redis.pcall('PUBLISH', channel, string.format('%.0f', version))
return { new, lost }
