-- Sets the flag rule: gives it a version and the time, audits it, tells the replicas.
--
-- The version is the time in ms, or one more than the newest known where that is later: so a change is newer than any
-- made before it, also where neither the store nor the asking replica knows of that one any more.
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
-- Reply: the rule now stored, JSON; why the audit did not take it, '' where it did.
--
-- Example: at 1790000000123 ms.
--   EVALSHA … 2 flags:virtual-queue.enabled flags:audit '{"enabled":false,…,"reason":"stop"}' kim stop
--     1790000000000 10000 16384 flags:changed
--   → '{"version":1790000000123,"updatedAtMs":1790000000123,"enabled":false,…,"reason":"stop"}' ''
--
-- The JSON is put together as text: cjson would turn [] into {} and long numbers into floats.
assert(#KEYS == 2 and #ARGV == 7, 'flag_put takes 2 KEYS and 7 ARGV')
local rule_key, audit_key = KEYS[1], KEYS[2]
local change, who, why, known = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local kept, longest, channel = ARGV[5], tonumber(ARGV[6]), ARGV[7]

-- pcall: setting the flag must also work over a key of another type, which somebody's hand left there.
local old = redis.pcall('GET', rule_key)
if type(old) ~= 'string' then
  old = ''
end

local now = flag_now()
local version = math.max((flag_version(old) or 0) + 1, known + 1, tonumber(now))
local new = string.format('{"version":%.0f,"updatedAtMs":%s,', version, now) .. string.sub(change, 2)

-- The rule first: where it cannot be stored, nothing is audited either.
redis.call('SET', rule_key, new)
local lost = flag_audit(audit_key, kept, longest, now, who, old, new, why)
-- pcall: the channel may be forbidden to us, and is only a hint; replicas poll.
redis.pcall('PUBLISH', channel, string.format('%.0f', version))
return { new, lost }
